package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/display"
)

// The reasons why a message was not published. If the endpoint has answered, the reason is a
// *StatusError instead.
var (
	// ErrTimeout says that the endpoint did not answer in time.
	ErrTimeout error = &failure{"timeout", "webhook: the endpoint did not answer in time"}

	// ErrAway says that the message was not sent, because its endpoint is unavailable: a short time
	// ago, the endpoint did not answer, or answered that it is unavailable.
	ErrAway error = &failure{"away", "webhook: the endpoint is unavailable"}

	// ErrHeldBack says that the message was not sent, because an earlier message with its topic and
	// key was not published.
	ErrHeldBack error = &failure{"held back", "webhook: an earlier message of the key was not published"}

	// ErrNotPublic says that the URL is not https, or leads to an address that is not public.
	ErrNotPublic error = &failure{"not public", "webhook: the URL does not lead to a public address by https"}
)

type failure struct{ class, text string }

func (f *failure) Error() string { return f.text }

// Class returns the class of dead letters with this error.
func (f *failure) Class() string { return f.class }

// StatusError says that an endpoint has answered with a status other than 2xx.
type StatusError struct {
	Status     int
	RetryAfter time.Duration // the time in the header Retry-After, 0 if there is none
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("webhook: the endpoint has answered %d %s", e.Status, http.StatusText(e.Status))
}

// Class returns the class of dead letters with this error.
func (e *StatusError) Class() string { return "status " + strconv.Itoa(e.Status) }

// retryAfter returns the duration in the header Retry-After. It returns 0 if the value is invalid
// or in the past.
func retryAfter(header http.Header) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(date))
	}
	return 0
}

// asTimeout replaces the error of an ended context by ErrTimeout. Otherwise the relay would
// conclude that the context of its whole call has ended, and would count no attempt.
func asTimeout(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %v", ErrTimeout, err)
	}
	return err
}

// maxText is the maximum number of bytes in an error that contains text from an endpoint.
const maxText = 500

// truncated is an error with a truncated text.
type truncated struct{ error }

func (t truncated) Error() string { return display.Storable(t.error.Error(), maxText) }

// Class returns the class of dead letters with this error.
func (t truncated) Class() string { return deadletter.ClassOf(t.error) }

func (t truncated) Unwrap() error { return t.error }
