package idemclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Sentinel errors of an *Error, for errors.Is. An *Error also wraps the error of the last attempt.
var (
	// ErrKeyTooOld means that the key is older than the server's retention. The Transport no longer
	// sends the key. Before you send the write with a new key, find out in another way whether the
	// write has happened.
	ErrKeyTooOld = errors.New("the key is older than the server's retention")

	// ErrBudgetExhausted means that the retry budget of the Transport is used up.
	ErrBudgetExhausted = errors.New("the retry budget is exhausted")

	// ErrInvalidKey means that a key from WithKey or the header cannot be sent. A key has 1 to 255
	// printable ASCII characters.
	ErrInvalidKey = errors.New("invalid key")

	// ErrAttemptTimeout means that an attempt had no answer within AttemptTimeout.
	ErrAttemptTimeout error = attemptTimeout{}
)

// Error is the error of RoundTrip if the last attempt had no response. If the call has a key,
// reading a response body that breaks off also returns an Error. Unless Attempts is 0, the write
// may or may not have happened. The same request may be sent again with the same key, until the key
// is too old (ErrKeyTooOld). FullKey returns the key. A printed Error shows the key abridged.
type Error struct {
	Stop     Stop          // why there was no further attempt
	Attempts int           // attempts since the last redirect
	Key      string        // abridged for logs; empty if there was no key
	KeyAge   time.Duration // age of the key
	Status   int           // the last status, if the call ended in the pause after a response or while its body was read
	Err      error         // the error of the last attempt, and of the context if the context ended the call

	full *hiddenKey
}

// FullKey returns the whole key of the call and the time at which the key was made. Store both, or
// pass both to WithKeySentBefore for the next call. FullKey returns "" if the call has no key or an
// invalid key.
//
// After a redirect, FullKey still returns the key of the first request, even if the redirect has
// dropped the key. If a host that did not get the key has executed the write, the key does not
// prevent a second execution on this host. A key that the caller has written into the header is
// returned without quotes. To repeat such a call, the program must write the key into the header
// again.
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

// Unwrap returns the sentinel error of Stop, if there is one, and Err.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{sentinels[e.Stop], e.Err}, func(err error) bool { return err == nil })
}

// Timeout reports whether the cause was a timeout. *url.Error calls it.
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

// LastAttempt returns the attempt that got the response. The field Stop says why there was no
// further attempt. LastAttempt returns false for a response that does not come from a Transport.
func LastAttempt(resp *http.Response) (Attempt, bool) {
	c := callOf(resp)
	if c == nil {
		return Attempt{}, false
	}
	return c.last, true
}
