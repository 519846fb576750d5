package inbox

import (
	"context"
	"errors"
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

// ErrNoDeadLetter is returned where there is no dead letter with the Ref.
var ErrNoDeadLetter = deadletter.ErrNotFound

// Ref names a message of a consumer, and its dead letter.
type Ref struct{ Consumer, Source, ID string }

// DeadLetter is a message that a consumer could not handle in as many attempts as it may have. Its ID is that of the message, or
// is made from it if that belongs to another payload or is invalid.
type DeadLetter struct {
	Message
	Consumer string
	Class    string // the kind of the last error, which is fit to be a label
	Reason   string // the text of the last error, cut off if it is long
	Attempts int
	SealedBy string // the key with which payload and headers are sealed, "" if they are plain

	DiedAt time.Time // for the last time
}

// Ref returns the name of the dead letter.
func (d *DeadLetter) Ref() Ref { return Ref{d.Consumer, d.Source, d.ID} }

// listPage is how many dead letters List reads at a time.
const listPage = 100

// List iterates over dead letters in the order of consumer, source and ID, without their payloads and headers. What is empty in
// only matches all. A redriven message is listed until it is handled. An error ends the iteration.
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

// Show returns a dead letter with its payload and headers. Of the options only WithSealer matters, which opens them.
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

// Redrive makes a dead letter a message again, with no attempts yet, at the end of its key. RunRedrives handles it from its own
// payload, or a delivery by the broker does, whichever comes first. Until it is handled it has its dead letter, and an ordered
// consumer keeps later messages of its key behind it. The dead letter of a message whose id belongs to another payload is handled
// under the ID of the dead letter.
func Redrive(ctx context.Context, pool *pgxpool.Pool, ref Ref) error {
	redrive := &db.RedriveMessage{Consumer: ref.Consumer, Source: ref.Source, ID: ref.ID}
	return change(ctx, pool, ref, audit.Note(ctx, db.Redrive, "to be tried again"), redrive, &redrive.Known)
}

// Drop removes a dead letter for good, also one that was redriven and is not handled yet: nothing waits behind its message any
// more. As long as the inbox remembers the message, see WithRetention, a delivery of it is Dead. A later delivery is a new message.
func Drop(ctx context.Context, pool *pgxpool.Pool, ref Ref) error {
	drop := &db.DropMessage{Consumer: ref.Consumer, Source: ref.Source, ID: ref.ID}
	return change(ctx, pool, ref, audit.Note(ctx, db.Drop, "deleted"), drop, &drop.Known)
}

// change makes a change to a dead letter, and records who did it. known tells whether the dead letter exists.
func change(ctx context.Context, pool *pgxpool.Pool, ref Ref, note db.NoteAct, request txn.Request, known *bool) error {
	if pool == nil {
		return errNoPool
	}
	note.Letter = ref.name()
	once := func() error {
		tx, err := (&txn.Engine{Pool: pool, Limits: txn.DefaultLimits}).Open(ctx, request)
		if err != nil {
			return err
		}
		defer tx.Close()
		if !*known {
			return ErrNoDeadLetter
		}
		return tx.Commit(ctx, &note)
	}
	for pause := txn.RetryPause; ; {
		err := once()
		if !txn.Rerunnable(err) || txn.Sleep(ctx, pause.Next()) != nil {
			return hint(err)
		}
	}
}

// Stats are what a consumer has yet to handle. Times are those of the database's clock.
type Stats struct {
	Consumer     string
	Failing      int       // messages that are to be tried again
	FailingSince time.Time // when the first of them failed first, zero if there is none
	Dead         int       // dead letters
	DeadSince    time.Time // when the first of them died
}

// ReadStats returns the Stats of each consumer that has failing messages or dead letters. It reads no handled messages.
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

var errNoPool = errors.New("inbox: pool is nil")

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
	var sealer db.Sealer // not an interface around a nil one
	if s.sealer != nil {
		sealer = s.sealer
	}
	contents, err := c.Open(sealer, ref.name())
	if err == nil {
		headers, err = db.ReadHeaders(contents.Headers)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("inbox: read the dead letter of message %s: %w", display.Printable(ref.ID), err)
	}
	return contents.Payload, headers, nil
}

// Limits of what a dead letter keeps of a message, which are those of an outbox.
const (
	maxType    = 255
	maxHeaders = 64 << 10
)

// typeOf is the type of a message as a dead letter keeps it: a text of strangers that the database takes.
func typeOf(m *Message) string { return deadletter.Printable(m.Type, maxType) }

// contentsOf are payload and headers of a message as a dead letter keeps them.
func contentsOf(m *Message) db.Contents {
	kept, size := make(map[string]string, len(m.Headers)), 0
	for name, value := range m.Headers {
		kept[deadletter.Printable(name, maxHeaders)] = deadletter.Printable(value, maxHeaders)
		size += len(name) + len(value)
	}
	if size > maxHeaders {
		return db.Contents{Payload: m.Payload}
	}
	headers, _ := db.WriteHeaders(kept) // texts are always JSON
	return db.Contents{Payload: m.Payload, Headers: headers}
}

func query(ctx context.Context, pool *pgxpool.Pool, request txn.Request) error {
	if pool == nil {
		return errNoPool
	}
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	return hint(engine.Query(ctx, request))
}
