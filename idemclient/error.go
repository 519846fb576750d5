package idemclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// What an *Error can be tested for with errors.Is, besides the error of the last attempt.
var (
	// ErrKeyTooOld says that the key is older than the server remembers. Since then nothing was sent with it. Find out in
	// another way whether the write has happened before you try it with a new key.
	ErrKeyTooOld = errors.New("the key is older than the server's retention")

	// ErrBudgetExhausted says that the Transport has spent its share of retries.
	ErrBudgetExhausted = errors.New("the retry budget is exhausted")

	// ErrInvalidKey says that a key given by WithKey cannot be sent: it has 1 to 255 printable ASCII characters.
	ErrInvalidKey = errors.New("invalid key")

	// ErrAttemptTimeout says that an attempt had no answer within AttemptTimeout.
	ErrAttemptTimeout error = attemptTimeout{}
)

// Error is what RoundTrip returns if the last attempt had no response. It is also what the body of a response returns if it
// breaks off while it is read and the call has a key. Unless Attempts is 0, the write may or may not have happened, and the
// same request may be sent again with the same key until ErrKeyTooOld. FullKey returns that key. Printed in any way, an
// Error shows it abridged.
type Error struct {
	Stop     Stop          // why there was no further attempt
	Attempts int           // how many there were, since the last redirect
	Key      string        // abridged, fit for a log; empty if there was none
	KeyAge   time.Duration // how old the key was
	Status   int           // of the last response, if the call ended in the pause after it or while its body was read
	Err      error         // of the last attempt, and of the context if that ended the call

	full *hiddenKey
}

// FullKey returns the whole key of the call and when it was made, to be stored, or to be given to WithKeySentBefore for the
// next call. It returns "" if the call has no key, or one that cannot be sent.
//
// After a redirect it is still the key of the first request. A host that the redirect did not take it to does not know it:
// if the write has happened there, this key does not keep it from happening there again. A key that the caller has written
// into the header is returned without quotes; a program that repeats such a call writes it into the header again.
func (e *Error) FullKey() (key string, made time.Time) {
	return e.full.key()
}

func (e *Error) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "idemclient: %s; attempts: %d", e.Stop.text(), e.Attempts)
	if e.Key != "" {
		text.WriteString(", key " + e.Key)
	}
	if e.Status != 0 {
		fmt.Fprintf(&text, ", last status %d", e.Status)
	}
	if e.Err != nil {
		text.WriteString(": " + e.Err.Error())
	}
	return text.String()
}

// Unwrap returns the sentinel error of the reason, if it has one, and the cause.
func (e *Error) Unwrap() []error {
	var errs []error
	switch e.Stop {
	case StopKeyTooOld:
		errs = append(errs, ErrKeyTooOld)
	case StopBudget:
		errs = append(errs, ErrBudgetExhausted)
	case StopInvalidKey:
		errs = append(errs, ErrInvalidKey)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// Timeout reports whether the cause was a timeout. It is how *url.Error knows.
func (e *Error) Timeout() bool {
	if e.Stop == StopEnded {
		return errors.Is(e.Err, context.DeadlineExceeded)
	}
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](e.Err)
	return ok && timeout.Timeout()
}

type attemptTimeout struct{}

func (attemptTimeout) Error() string { return "the attempt timed out before there was an answer" }
func (attemptTimeout) Timeout() bool { return true }

// LastAttempt tells which attempt a response belongs to, and why there was no further one. It reports false for a response
// that does not come from a Transport.
func LastAttempt(resp *http.Response) (Attempt, bool) {
	c := callOf(resp)
	if c == nil {
		return Attempt{}, false
	}
	return c.last, true
}
