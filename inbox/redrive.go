package inbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/act"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// Redrive lets a dead letter be tried again, with as many attempts as any message: by RunRedrives, from the payload that it has, or
// by a delivery of the message, whichever comes first. It stays on record until that works. The dead letter of a message whose id
// belongs to another payload is then handled under the id that it has as a dead letter.
func Redrive(ctx context.Context, pool *pgxpool.Pool, consumer, source, id string) error {
	if pool == nil {
		return errNoPool
	}
	redrive := store.RedriveMessage{Consumer: consumer, MessageID: store.MessageID{Source: source, ID: id}}
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	tx, err := engine.Open(ctx, &redrive)
	if err != nil {
		return hint(err)
	}
	defer tx.Close()
	if !redrive.Known {
		return ErrNoDeadLetter
	}
	note := act.Of(ctx, store.Redrive, "to be tried again")
	note.Letter = nameOf(consumer, source, id)
	return hint(tx.Commit(ctx, &note))
}

// HandleRedrives handles the dead letters of a consumer that are to be tried again, up to a number of them, as Batch does. It returns
// the messages as well. RunRedrives calls it now and then: as a rule there is none, which costs one query.
func HandleRedrives(ctx context.Context, pool *pgxpool.Pool, consumer string, atMost int, fn func(tx pgx.Tx, m Message) error, opts ...Option) ([]Message, []Outcome, error) {
	s := newSettings(opts)
	if s.err != nil {
		return nil, nil, s.err
	}
	redrives := store.MessageRedrives{Consumer: consumer, Room: atMost}
	if err := query(ctx, pool, &redrives); err != nil || len(redrives.Redrives) == 0 {
		return nil, nil, err
	}
	var messages []Message
	var unreadable []error
	for i := range redrives.Redrives {
		m, err := opened(&s, consumer, &redrives.Redrives[i])
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
		err = errors.Join(err, query(ctx, pool, store.ForgetRedrives{Messages: group}))
	}
	return messages, outcomes, errors.Join(append(unreadable, err)...)
}

// opened makes a message of what is stored.
func opened(s *settings, consumer string, r *store.MessageRedrive) (Message, error) {
	m := Message{Source: r.Source, ID: r.ID, Key: r.Key, Type: r.Type, Deliveries: 2} // it may have killed its process
	var err error
	m.Payload, m.Headers, err = open(r.Contents, s.sealer, nameOf(consumer, r.Source, r.ID))
	return m, err
}

func query(ctx context.Context, pool *pgxpool.Pool, request txn.Request) error {
	if pool == nil {
		return errNoPool
	}
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	return hint(engine.Query(ctx, request))
}
