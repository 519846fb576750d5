package webhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/internal/deadletter"
)

// Why a message was not published, besides what the endpoint has answered, which is a *StatusError.
var (
	// ErrTimeout says that the endpoint has not answered in time.
	ErrTimeout error = &failure{"timeout", "webhook: the endpoint has not answered in time"}

	// ErrAway says that the message was not sent: its endpoint did not answer, or has asked to be left alone, a short while ago.
	ErrAway error = &failure{"away", "webhook: the endpoint is away"}

	// ErrHeldBack says that the message was not sent: one before it, of its topic and key, was not published.
	ErrHeldBack error = &failure{"held back", "webhook: an earlier message of its key was not published"}

	// ErrNotPublic says that the URL leads to an address that is not public, or is not https: to where a stranger has no business.
	ErrNotPublic error = &failure{"not public", "webhook: the URL does not lead to a public address by https"}
)

type failure struct{ class, text string }

func (f *failure) Error() string { return f.text }

// Class is that of a dead letter.
func (f *failure) Class() string { return f.class }

// timely says that the endpoint has not answered in time, in the place of an error that says that a context is over.
func timely(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %v", ErrTimeout, err)
	}
	return err
}

// maxText is how much an error may say of what an endpoint has answered.
const maxText = 500

// brief is an error whose text is cut off.
type brief struct{ error }

func (b brief) Error() string { return deadletter.Printable(b.error.Error(), maxText) }

// Class is that of a dead letter.
func (b brief) Class() string { return deadletter.ClassOf(b.error) }

func (b brief) Unwrap() error { return b.error }
