// Package panics calls functions of the user and turns their panics into errors, so that a panic
// does not end the process.
package panics

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Error reports that a function panicked. It holds the type of the panic value but not the value,
// which may contain the payload of a message.
type Error struct {
	Type  string
	Stack []byte // for a log
}

func (e *Error) Error() string { return "a panic with a value of type " + e.Type }

// ErrPanicked matches every *Error in errors.Is.
var ErrPanicked = errors.New("a function has panicked")

// Is makes errors.Is(err, ErrPanicked) true.
func (*Error) Is(target error) bool { return target == ErrPanicked }

// Class returns the error class of a dead letter.
func (*Error) Class() string { return "panic" }

// Goexit returns the error for a function that called runtime.Goexit.
func Goexit() error { return &Error{Type: "none: its goroutine was ended"} }

// Try calls f and returns its error, or an *Error if f panics.
func Try(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &Error{Type: fmt.Sprintf("%T", value), Stack: debug.Stack()}
		}
	}()
	return f()
}

// Run calls f and logs a panic of f. The parameter what names f: the message of the log line is
// that name and "has panicked".
func Run(logger *slog.Logger, what string, f func()) {
	err := Try(func() error {
		f()
		return nil
	})
	Log(logger, what, err)
}

// Log logs type and stack of a panic if err is or wraps an *Error. args are further attributes of
// the line, as in [slog.Logger.Error].
func Log(logger *slog.Logger, what string, err error, args ...any) {
	if p, ok := errors.AsType[*Error](err); ok {
		logger.Error(what+" has panicked", append(args, "type", p.Type, "stack", string(p.Stack))...)
	}
}
