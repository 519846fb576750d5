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

// ErrNoDeadLetter is returned if no dead letter has the Ref.
var ErrNoDeadLetter = deadletter.ErrNotFound

// Ref identifies a message of a consumer, and its dead letter.
type Ref struct{ Consumer, Source, ID string }

// DeadLetter is a message that a consumer failed to handle in WithMaxAttempts attempts. Its ID is
// that of the message, or a substitute if the ID of the message is invalid or belongs to another
// payload.
type DeadLetter struct {
	Message
	Consumer string
	Class    string // the kind of the last error, suitable as a metric label
	Reason   string // the text of the last error, truncated if it is long
	Attempts int
	SealedBy string // the key that seals payload and headers, "" if they are plain

	DiedAt time.Time // for the last time
}

// Ref returns the Ref of the dead letter.
func (d *DeadLetter) Ref() Ref { return Ref{d.Consumer, d.Source, d.ID} }

// List iterates over dead letters in the order of consumer, source and ID, without their payloads
// and headers. An empty field of only matches all values. A redriven message is listed until it is
// handled. An error ends the iteration.
func List(ctx context.Context, pool *pgxpool.Pool, only Ref) iter.Seq2[DeadLetter, error] {
	if pool == nil {
		return func(yield func(DeadLetter, error) bool) { yield(DeadLetter{}, errNoPool) }
	}
	return deadletter.List(ctx, pool, only.name(), readLetter, hint)
}

// Show returns a dead letter with its payload and headers. It uses one option: WithSealer opens
// them.
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

// Redrive makes a dead letter a message again, at the end of its key, with no attempts counted.
// RunRedrives handles it from its own payload, or a delivery by the broker does, whichever comes
// first. Until then the dead letter stays, and later messages of its key wait for it with
// WithOrder. The dead letter of a mismatch is handled under the ID of the dead letter.
func Redrive(ctx context.Context, pool *pgxpool.Pool, ref Ref) error {
	redrive := &db.RedriveMessage{Consumer: ref.Consumer, Source: ref.Source, ID: ref.ID}
	return change(ctx, pool, ref, audit.Note(ctx, db.Redrive, "to be tried again"), redrive, &redrive.Known)
}

// Drop deletes a dead letter, also one that was redriven and is not handled yet. Messages of its
// key no longer wait for it. While the inbox stores the ID (see WithRetention), a delivery of the
// message is Dead. After that, a delivery is a new message.
func Drop(ctx context.Context, pool *pgxpool.Pool, ref Ref) error {
	drop := &db.DropMessage{Consumer: ref.Consumer, Source: ref.Source, ID: ref.ID}
	return change(ctx, pool, ref, audit.Note(ctx, db.Drop, "deleted"), drop, &drop.Known)
}

// change changes a dead letter, and stores the action in idem.audit. The request sets known if the
// dead letter exists.
func change(ctx context.Context, pool *pgxpool.Pool, ref Ref, note db.NoteAct, request txn.Request, known *bool) error {
	if pool == nil {
		return errNoPool
	}
	note.Letter = ref.name()
	return hint(deadletter.Change(ctx, pool, request, known, func(tx *txn.Tx) error { return tx.Commit(ctx, &note) }))
}

// Stats count the messages that a consumer still has to handle. Times are by the clock of the
// database.
type Stats struct {
	Consumer     string
	Failing      int       // messages that have to be tried again
	FailingSince time.Time // the earliest first failure of them, zero if there is none
	Dead         int       // dead letters
	DeadSince    time.Time // when the oldest of them became one
}

// ReadStats returns the Stats of each consumer that has failing messages or dead letters. Its query
// reads no handled messages.
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

// The limits of what a dead letter stores. Those of the outbox are the same.
const (
	maxType    = 255
	maxHeaders = 64 << 10
)

// contentsOf returns the payload and the headers of a message as a dead letter stores them. It
// leaves out headers that are too large.
func contentsOf(m *Message) db.Contents {
	stored, size := make(map[string]string, len(m.Headers)), 0
	for name, value := range m.Headers {
		stored[deadletter.Printable(name, maxHeaders)] = deadletter.Printable(value, maxHeaders)
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
