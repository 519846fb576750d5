// Package panics calls functions of the user and turns their panics into errors, so that a panic
// does not end the process.
package panics

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Error reports that a function panicked. It has the type of the panic value, but not the value,
// because the value may contain the payload of a message.
type Error struct {
	Type  string
	Stack []byte // the stack of the panicked goroutine, for a log
}

func (e *Error) Error() string { return "a panic with a value of type " + e.Type }

// ErrPanicked matches every *Error in errors.Is.
var ErrPanicked = errors.New("a function has panicked")

// Is makes errors.Is(err, ErrPanicked) true.
func (*Error) Is(target error) bool { return target == ErrPanicked }

// Class returns the class of the error, which a dead letter stores.
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

// Run calls f and logs a panic of f. The parameter what names f in the log message.
func Run(logger *slog.Logger, what string, f func()) {
	err := Try(func() error {
		f()
		return nil
	})
	Log(logger, what, err)
}

// Log logs the type and the stack of a panic if err is or wraps an *Error. args are more attributes
// for the log record, as in [slog.Logger.Error].
func Log(logger *slog.Logger, what string, err error, args ...any) {
	if p, ok := errors.AsType[*Error](err); ok {
		logger.Error(what+" has panicked", append(args, "type", p.Type, "stack", string(p.Stack))...)
	}
}
