package outbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
)

// ErrNoDeadLetter says that there is no dead letter with this Ref.
var ErrNoDeadLetter = deadletter.ErrNotFound

// Ref names a message, and its dead letter.
type Ref struct{ Topic, ID string }

// DeadLetter is a message that could not be published in as many attempts as it may have.
type DeadLetter struct {
	Message
	Class    string // the kind of the last error, which is fit to be a label
	Reason   string // the text of the last error, cut off if it is long
	Attempts int
	SealedBy string // the key with which payload and headers are sealed, "" if they are plain

	AddedAt, DiedAt time.Time
}

// Ref returns the name of the dead letter.
func (d *DeadLetter) Ref() Ref { return Ref{d.Topic, d.ID} }

// DeadLetterOption changes Show and Redrive.
type DeadLetterOption func(*deadLetterSettings)

type deadLetterSettings struct{ sealer db.Sealer }

// WithSealer opens a dead letter that is sealed.
func WithSealer(sealer idem.Sealer) DeadLetterOption {
	return func(s *deadLetterSettings) {
		if s.sealer = nil; sealer != nil { // no interface around a nil one
			s.sealer = sealer
		}
	}
}

// listPage is how many dead letters List reads at a time.
const listPage = 100

// List iterates over dead letters in the order of topic and ID, without their payloads and headers. What is empty in only matches all. An
// error ends the iteration.
func List(ctx context.Context, pool *pgxpool.Pool, only Ref) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		if pool == nil {
			yield(DeadLetter{}, errNoPool)
			return
		}
		for after := (Ref{}); ; {
			letters, err := deadletter.List(ctx, pool, only.name(), after.name(), listPage)
			if err != nil {
				yield(DeadLetter{}, hint(err))
				return
			}
			for i := range letters {
				d := readLetter(&letters[i])
				if after = d.Ref(); !yield(d, nil) {
					return
				}
			}
			if len(letters) < listPage {
				return
			}
		}
	}
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

// Redrive makes a dead letter a message again: under the same ID, with no attempts yet, at the end of its key. The dead letter is gone
// then, so that Drop returns ErrNoDeadLetter: the message is published, or becomes another dead letter.
func Redrive(ctx context.Context, pool *pgxpool.Pool, ref Ref, opts ...DeadLetterOption) error {
	if pool == nil {
		return errNoPool
	}
	return orHint(deadletter.Redrive(ctx, pool, ref.name(), func(tx pgx.Tx, letter deadletter.Letter) error {
		dead, err := open(&letter, opts)
		if err != nil {
			return err
		}
		return Add(ctx, tx, dead.Message)
	}))
}

// Drop removes a dead letter for good. Its message is never published.
func Drop(ctx context.Context, pool *pgxpool.Pool, ref Ref) error {
	if pool == nil {
		return errNoPool
	}
	return orHint(deadletter.Drop(ctx, pool, ref.name()))
}

var errNoPool = errors.New("outbox: pool is nil")

func orHint(err error) error {
	if err == nil {
		return nil
	}
	return hint(err)
}

func (r Ref) name() deadletter.Name {
	return deadletter.Name{Side: deadletter.Outbox, Source: r.Topic, ID: r.ID}
}

func readLetter(l *deadletter.Letter) DeadLetter {
	return DeadLetter{
		Message: Message{ID: l.ID, Topic: l.Source, Key: l.Key, Type: l.Type}, Class: l.Class, Reason: l.Reason, Attempts: l.Attempts,
		SealedBy: l.Contents.SealedBy, AddedAt: l.CreatedAt, DiedAt: l.DiedAt,
	}
}

// open returns a dead letter with its payload and headers.
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
		return DeadLetter{}, errors.Join(fmt.Errorf("outbox: the dead letter %s cannot be read", l.ID), err)
	}
	return dead, nil
}
