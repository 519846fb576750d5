package inbox

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/audit"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/display"
	"github.com/idem-go/idem/internal/txn"
)

// ErrNoDeadLetter is the error of Show, Redrive and Drop if no dead letter has the Ref.
var ErrNoDeadLetter = deadletter.ErrNotFound

// Ref identifies a message of a consumer, and its dead letter.
type Ref struct{ Consumer, Source, ID string }

// DeadLetter is a message that a consumer does not try any more, for example because
// WithMaxAttempts attempts have failed. It has the ID of the message. If that ID is invalid or
// belongs to another payload, it has a substitute ID.
type DeadLetter struct {
	Message
	Consumer string
	Class    string // the kind of the last error, suitable as a metric label
	Reason   string // the text of the last error, truncated if it is long
	Attempts int
	SealedBy string // the ID of the key that encrypts payload and headers, "" if they are not encrypted

	DiedAt time.Time // when the message last became a dead letter
}

// Ref returns the Ref of the dead letter.
func (d *DeadLetter) Ref() Ref { return Ref{d.Consumer, d.Source, d.ID} }

// List iterates over dead letters in the order of consumer, source and ID, without their payloads
// and headers. The Ref filters the list: an empty field matches all values. A redriven message is
// listed until it is handled. An error ends the iteration.
func List(ctx context.Context, pool *pgxpool.Pool, only Ref) iter.Seq2[DeadLetter, error] {
	if pool == nil {
		return func(yield func(DeadLetter, error) bool) { yield(DeadLetter{}, errNoPool) }
	}
	return deadletter.List(ctx, pool, only.name(), readLetter, hint)
}

// Show returns a dead letter with its payload and headers. The only option that it uses is
// WithSealer, which decrypts them.
func Show(ctx context.Context, pool *pgxpool.Pool, ref Ref, opts ...Option) (DeadLetter, error) {
	s := newSettings(opts)
	switch {
	case pool == nil:
		return DeadLetter{}, errNoPool
	case s.err != nil:
		return DeadLetter{}, s.err
	}
	letter, err := deadletter.Show(ctx, pool, ref.name())
	if err != nil {
		return DeadLetter{}, hint(err)
	}
	dead := readLetter(&letter)
	dead.Payload, dead.Headers, err = s.open(letter.Contents, ref)
	if err != nil {
		return DeadLetter{}, err
	}
	return dead, nil
}

// Redrive makes a dead letter a failing message again, behind the failing messages of its key, with
// no attempts counted. RunRedrives handles it with the payload of the dead letter, unless the
// broker delivers the message first. Until the message is handled, the dead letter stays, and with
// WithOrder later messages of its key wait. If the reason of the dead letter is ErrMismatch, the
// message is handled under the substitute ID of the dead letter.
func Redrive(ctx context.Context, pool *pgxpool.Pool, ref Ref) error {
	redrive := &db.RedriveMessage{Consumer: ref.Consumer, Source: ref.Source, ID: ref.ID}
	return change(ctx, pool, ref, audit.Note(ctx, db.Redrive, "to be tried again"), redrive, &redrive.Known)
}

// Drop deletes a dead letter, even if it was redriven and is not handled yet. Messages of its key
// no longer wait for it. While the inbox stores the ID (see WithRetention), the outcome of another
// delivery is Dead. After that time, a delivery counts as a new message.
func Drop(ctx context.Context, pool *pgxpool.Pool, ref Ref) error {
	drop := &db.DropMessage{Consumer: ref.Consumer, Source: ref.Source, ID: ref.ID}
	return change(ctx, pool, ref, audit.Note(ctx, db.Drop, "deleted"), drop, &drop.Known)
}

// change runs a request that changes a dead letter, and records the action in idem.audit. The
// request sets *known to true if the dead letter exists.
func change(ctx context.Context, pool *pgxpool.Pool, ref Ref, note db.NoteAct, request txn.Request, known *bool) error {
	if pool == nil {
		return errNoPool
	}
	note.Letter = ref.name()
	return hint(deadletter.Change(ctx, pool, request, known, func(tx *txn.Tx) error { return tx.Commit(ctx, &note) }))
}

// Stats count the messages of a consumer that have failed and are not handled. Times are by the
// clock of the database.
type Stats struct {
	Consumer     string
	Failing      int       // messages that have to be tried again
	FailingSince time.Time // the earliest time at which one of them failed first; zero if there are none
	Dead         int       // dead letters
	DeadSince    time.Time // when the oldest dead letter became one
}

// ReadStats returns the Stats of each consumer that has failing messages or dead letters. It reads
// no rows of handled messages.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) ([]Stats, error) {
	read := db.InboxStats{}
	if err := query(ctx, pool, &read); err != nil {
		return nil, err
	}
	all := make([]Stats, len(read.Rows))
	for i, c := range read.Rows {
		all[i] = Stats{Consumer: c.Consumer, Failing: c.Failing, FailingSince: c.FailingSince, Dead: c.Dead, DeadSince: c.DiedAt}
	}
	return all, nil
}

func (r Ref) name() deadletter.Name {
	return deadletter.Name{Side: deadletter.Inbox, Consumer: r.Consumer, Source: r.Source, ID: r.ID}
}

func readLetter(l *deadletter.Letter) DeadLetter {
	return DeadLetter{
		Message: Message{Source: l.Source, ID: l.ID, Key: l.Key, Type: l.Type}, Consumer: l.Consumer, Class: l.Class, Reason: l.Reason,
		Attempts: l.Attempts, SealedBy: l.Contents.SealedBy, DiedAt: l.DiedAt,
	}
}

// open returns the payload and the headers of a dead letter.
func (s *settings) open(c db.Contents, ref Ref) (payload []byte, headers map[string]string, err error) {
	contents, err := c.Open(s.sealer, ref.name())
	if err == nil {
		headers, err = db.ReadHeaders(contents.Headers)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("inbox: cannot read the dead letter of message %s: %w", display.Printable(ref.ID), err)
	}
	return contents.Payload, headers, nil
}

// The maximum sizes of Type and Headers in a dead letter, in bytes. The outbox has the same limits.
const (
	maxType    = 255
	maxHeaders = 64 << 10
)

// contentsOf returns the payload and the headers of a message as a dead letter stores them. If the
// headers are too large together, it leaves out all of them.
func contentsOf(m *Message) db.Contents {
	stored, size := make(map[string]string, len(m.Headers)), 0
	for name, value := range m.Headers {
		stored[display.Storable(name, maxHeaders)] = display.Storable(value, maxHeaders)
		size += len(name) + len(value)
	}
	if size > maxHeaders {
		return db.Contents{Payload: m.Payload}
	}
	headers, _ := db.WriteHeaders(stored) // valid UTF-8 always encodes as JSON
	return db.Contents{Payload: m.Payload, Headers: headers}
}

func query(ctx context.Context, pool *pgxpool.Pool, request txn.Request) error {
	if pool == nil {
		return errNoPool
	}
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	return hint(engine.Query(ctx, request))
}
