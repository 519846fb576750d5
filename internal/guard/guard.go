// Package guard calls functions of the user's. One that panics returns an error, and the process lives.
package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Panic is the error of a function that has panicked. It tells of what type the value is and not what it says, which may be
// what is in a message.
type Panic struct {
	Type  string
	Stack []byte // for a log
}

func (p *Panic) Error() string { return "a panic with a value of type " + p.Type }

// ErrPanicked is what a *Panic is.
var ErrPanicked = errors.New("a function has panicked")

// Is makes it ErrPanicked.
func (*Panic) Is(target error) bool { return target == ErrPanicked }

// Class is that of a dead letter.
func (*Panic) Class() string { return "panic" }

// Ended is the error of a function whose goroutine was ended by runtime.Goexit.
func Ended() error { return &Panic{Type: "none: its goroutine was ended"} }

// Call returns what f returns, or a *Panic.
func Call(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &Panic{Type: fmt.Sprintf("%T", value), Stack: debug.Stack()}
		}
	}()
	return f()
}

// Do calls f, and logs a panic.
func Do(logger *slog.Logger, what string, f func()) {
	err := Call(func() error {
		f()
		return nil
	})
	Log(logger, what, err)
}

// Log logs the stack if an error is a panic, with args as of [slog.Logger.Error].
func Log(logger *slog.Logger, what string, err error, args ...any) {
	if p, ok := errors.AsType[*Panic](err); ok {
		logger.Error(what+" has panicked", append(args, "type", p.Type, "stack", string(p.Stack))...)
	}
}
