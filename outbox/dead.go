package outbox

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
)

// ErrNoDeadLetter is the error of Show, Redrive and Drop if no dead letter has the Ref.
var ErrNoDeadLetter = deadletter.ErrNotFound

// Ref identifies a message and its dead letter.
type Ref struct{ Topic, ID string }

// DeadLetter is a message that the relay does not publish any more. All its attempts have failed,
// or its destination was unavailable for longer than RelayConfig.MaxOutage.
type DeadLetter struct {
	Message
	Class    string // the kind of the last error, fit for a metric label
	Reason   string // the text of the last error, truncated if it is long
	Attempts int
	SealedBy string // the ID of the key that encrypts Payload and Headers, "" if they are not encrypted

	AddedAt, DiedAt time.Time
}

// Ref returns the Ref of d.
func (d *DeadLetter) Ref() Ref { return Ref{d.Topic, d.ID} }

// DeadLetterOption configures Show and Redrive.
type DeadLetterOption func(*deadLetterSettings)

type deadLetterSettings struct{ sealer db.Sealer }

// WithSealer sets the Sealer that decrypts the payload and headers of a dead letter.
func WithSealer(sealer idem.Sealer) DeadLetterOption {
	return func(s *deadLetterSettings) {
		s.sealer = nil
		if sealer != nil { // a nil idem.Sealer must become a nil db.Sealer
			s.sealer = sealer
		}
	}
}

// List iterates over dead letters in the order of topic and ID, without their payloads and headers.
// The Ref filters the list: an empty field matches all values. An error ends the iteration.
func List(ctx context.Context, pool *pgxpool.Pool, only Ref) iter.Seq2[DeadLetter, error] {
	if pool == nil {
		return func(yield func(DeadLetter, error) bool) { yield(DeadLetter{}, errNoPool) }
	}
	return deadletter.List(ctx, pool, only.name(), readLetter, hint)
}

// Show returns a dead letter with its payload and headers.
func Show(ctx context.Context, pool *pgxpool.Pool, ref Ref, opts ...DeadLetterOption) (DeadLetter, error) {
	if pool == nil {
		return DeadLetter{}, errNoPool
	}
	letter, err := deadletter.Show(ctx, pool, ref.name())
	if err != nil {
		return DeadLetter{}, hint(err)
	}
	return open(&letter, opts)
}

// Redrive moves a dead letter back to the outbox, in one transaction. The message keeps its ID,
// follows the messages of its key that are in the outbox, and has no attempts counted. Then it is
// published or becomes a dead letter again.
func Redrive(ctx context.Context, pool *pgxpool.Pool, ref Ref, opts ...DeadLetterOption) error {
	if pool == nil {
		return errNoPool
	}
	return hint(deadletter.Redrive(ctx, pool, ref.name(), func(tx pgx.Tx, letter deadletter.Letter) error {
		dead, err := open(&letter, opts)
		if err != nil {
			return err
		}
		return Add(ctx, tx, dead.Message)
	}))
}

// Drop deletes a dead letter. Its message is never published.
func Drop(ctx context.Context, pool *pgxpool.Pool, ref Ref) error {
	if pool == nil {
		return errNoPool
	}
	return hint(deadletter.Drop(ctx, pool, ref.name()))
}

func (r Ref) name() deadletter.Name {
	return deadletter.Name{Side: deadletter.Outbox, Source: r.Topic, ID: r.ID}
}

func readLetter(l *deadletter.Letter) DeadLetter {
	return DeadLetter{
		Message: Message{ID: l.ID, Topic: l.Source, Key: l.Key, Type: l.Type},
		Class:   l.Class, Reason: l.Reason, Attempts: l.Attempts, SealedBy: l.Contents.SealedBy,
		AddedAt: l.CreatedAt, DiedAt: l.DiedAt,
	}
}

// open returns a dead letter with its payload and headers, decrypted if they are sealed.
func open(l *deadletter.Letter, opts []DeadLetterOption) (DeadLetter, error) {
	var s deadLetterSettings
	for _, opt := range opts {
		opt(&s)
	}
	contents, err := l.Contents.Open(s.sealer, l.LetterName)
	dead := readLetter(l)
	if err == nil {
		dead.Payload = contents.Payload
		dead.Headers, err = db.ReadHeaders(contents.Headers)
	}
	if err != nil {
		return DeadLetter{}, fmt.Errorf("outbox: cannot read the contents of the dead letter %s: %w", l.ID, err)
	}
	return dead, nil
}
