package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/store"
)

// ErrNoDeadLetter says that there is no dead letter of the topic and ID.
var ErrNoDeadLetter = deadletter.ErrNotFound

// List returns up to room dead letters, in the order of topic and ID, beyond the one that is given. They have neither payload nor
// headers. An empty topic is all topics.
func List(ctx context.Context, pool *pgxpool.Pool, topic string, after DeadLetter, room int) ([]DeadLetter, error) {
	letters, err := deadletter.List(ctx, pool, deadletter.Name{Side: deadletter.Outbox, Source: topic}, nameOf(after.Topic, after.ID), room)
	if err != nil {
		return nil, hint(err)
	}
	dead := make([]DeadLetter, len(letters))
	for i := range letters {
		dead[i] = readLetter(&letters[i])
	}
	return dead, nil
}

// Show returns a dead letter with what it says. The Sealer may be nil if it is not sealed.
func Show(ctx context.Context, pool *pgxpool.Pool, sealer idem.Sealer, topic, id string) (DeadLetter, error) {
	letter, err := deadletter.Show(ctx, pool, nameOf(topic, id))
	if err != nil {
		return DeadLetter{}, hint(err)
	}
	return open(&letter, sealer)
}

// Redrive gives a dead letter to the outbox again, under the same ID, as the last message of its key. The Sealer may be nil if it
// is not sealed.
func Redrive(ctx context.Context, pool *pgxpool.Pool, sealer idem.Sealer, topic, id string) error {
	err := deadletter.Redrive(ctx, pool, nameOf(topic, id), func(tx pgx.Tx, letter deadletter.Letter) error {
		dead, err := open(&letter, sealer)
		if err != nil {
			return err
		}
		return Add(ctx, tx, dead.Message)
	})
	if err != nil {
		return hint(err)
	}
	return nil
}

// Drop removes a dead letter for good.
func Drop(ctx context.Context, pool *pgxpool.Pool, topic, id string) error {
	if err := deadletter.Drop(ctx, pool, nameOf(topic, id)); err != nil {
		return hint(err)
	}
	return nil
}

func nameOf(topic, id string) deadletter.Name {
	return deadletter.Name{Side: deadletter.Outbox, Source: topic, ID: id}
}

func readLetter(l *deadletter.Letter) DeadLetter {
	return DeadLetter{
		Message: Message{ID: l.ID, Topic: l.Source, Key: l.Key, Type: l.Type}, Class: l.Class, Reason: l.Reason, Attempts: l.Attempts,
		SealedBy: l.Contents.SealedBy, AddedAt: l.CreatedAt, DiedAt: l.DiedAt,
	}
}

// open returns a letter with what it says.
func open(l *deadletter.Letter, sealer idem.Sealer) (DeadLetter, error) {
	var by store.Sealer // not an interface around a nil one
	if sealer != nil {
		by = sealer
	}
	contents, err := l.Contents.Open(by, l.LetterName)
	dead := readLetter(l)
	if err == nil {
		dead.Payload = contents.Payload
		dead.Headers, err = store.ReadHeaders(contents.Headers)
	}
	if err != nil {
		return DeadLetter{}, errors.Join(fmt.Errorf("outbox: the dead letter %s cannot be read", l.ID), err)
	}
	return dead, nil
}
