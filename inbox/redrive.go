package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// ErrNoDeadLetter says that there is no dead letter of that name.
var ErrNoDeadLetter = errors.New("inbox: there is no such dead letter")

// Redrive lets a dead letter be tried again, with as many attempts as any message: by Redriven, from the payload that it has, or
// by a delivery of the message, whichever comes first. It stays on record until that works. The dead letter of a message whose id
// belongs to another payload is then handled under the id that it has as a dead letter.
func Redrive(ctx context.Context, pool *pgxpool.Pool, consumer, source, id string) error {
	redrive := store.RedriveMessage{Consumer: consumer, MessageID: store.MessageID{Source: source, ID: id}}
	if err := query(ctx, pool, &redrive); err != nil {
		return err
	}
	if !redrive.Known {
		return ErrNoDeadLetter
	}
	return nil
}

// Redriven handles the dead letters of a consumer that are to be tried again, up to a number of them, as Batch does. It returns
// the messages as well. A program that consumes calls it now and then: as a rule there is none, which costs one query.
func Redriven(ctx context.Context, pool *pgxpool.Pool, consumer string, atMost int, fn func(tx pgx.Tx, m Message) error, opts ...Option) ([]Message, []Outcome, error) {
	s := newSettings(opts)
	if s.err != nil {
		return nil, nil, s.err
	}
	redriven := store.RedrivenMessages{Consumer: consumer, Room: atMost}
	if err := query(ctx, pool, &redriven); err != nil || len(redriven.Redriven) == 0 {
		return nil, nil, err
	}
	var messages []Message
	var unreadable []error
	for i := range redriven.Redriven {
		m, err := opened(&s, consumer, &redriven.Redriven[i])
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		messages = append(messages, m)
	}
	outcomes, err := Batch(ctx, pool, consumer, messages, fn, opts...)
	var handled []store.MessageID
	for i, o := range outcomes {
		if o.State == Done || o.State == Duplicate {
			handled = append(handled, store.MessageID{Source: messages[i].Source, ID: messages[i].ID})
		}
	}
	if len(handled) > 0 { // those of which idem.inbox has known nothing any more are still there
		group := store.NewMessages(consumer, len(handled), func(i int) (store.MessageID, [32]byte) { return handled[i], [32]byte{} })
		err = errors.Join(err, query(ctx, pool, store.ForgetRedriven{Messages: group}))
	}
	return messages, outcomes, errors.Join(append(unreadable, err)...)
}

// opened makes a message of what is stored.
func opened(s *settings, consumer string, r *store.RedrivenMessage) (Message, error) {
	m := Message{Source: r.Source, ID: r.ID, Key: r.Key, Type: r.Type, Deliveries: 2} // it may have killed its process
	contents, err := r.Contents.Open(s.sealer, store.LetterName{Side: deadletter.Inbox, Consumer: consumer, Source: r.Source, ID: r.ID})
	if err == nil {
		m.Payload = contents.Payload
		m.Headers, err = store.ReadHeaders(contents.Headers)
	}
	if err != nil {
		return Message{}, fmt.Errorf("inbox: a dead letter cannot be read: %s: %w", abridged(r.ID), err)
	}
	return m, nil
}

// Stats tells what a consumer has yet to handle.
type Stats struct {
	Consumer     string
	Failing      int       // messages that are to be tried again
	FailingSince time.Time // when the first of them failed first, zero if there is none
	Dead         int       // dead letters
	DeadSince    time.Time // when the first of them died
}

// ReadStats returns the figures of each consumer that has any. It does not read what is handled. Times are those of the
// database's clock.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) ([]Stats, error) {
	stats := store.InboxStats{}
	if err := query(ctx, pool, &stats); err != nil {
		return nil, err
	}
	all := make([]Stats, len(stats.Consumers))
	for i, c := range stats.Consumers {
		all[i] = Stats{Consumer: c.Consumer, Failing: c.Failing, FailingSince: c.FailingSince, Dead: c.Dead, DeadSince: c.DiedAt}
	}
	return all, nil
}

func query(ctx context.Context, pool *pgxpool.Pool, request txn.Request) error {
	if pool == nil {
		return errors.New("inbox: pool is nil")
	}
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	return hint(engine.Query(ctx, request))
}
