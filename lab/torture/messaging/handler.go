package messaging

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/letter"
)

func inboxBatch(ctx context.Context, r *reader, messages []inbox.Message) ([]inbox.Outcome, error) {
	options := r.options()
	if rand.IntN(3) == 0 {
		options = append(options, inbox.WithLanes(2+rand.IntN(4)))
	}
	return inbox.Batch(ctx, r.pool(), r.consumer.Name, messages, func(tx pgx.Tx, m inbox.Message) error {
		return r.hear(ctx, tx, m)
	}, options...)
}

func inboxBulk(ctx context.Context, r *reader, messages []inbox.Message) ([]inbox.Outcome, error) {
	return inbox.Bulk(ctx, r.pool(), r.consumer.Name, messages, func(tx pgx.Tx, ms []inbox.Message) error {
		for _, m := range ms {
			if err := r.hear(ctx, tx, m); err != nil {
				return err
			}
		}
		return nil
	}, r.options()...)
}

func (r *reader) pool() *pgxpool.Pool { return r.pools[rand.IntN(len(r.pools))] }

var errPlanned = errors.New("the handler fails, as planned")

// hear is the handler of a letter. It writes an effect, obeys the fate of the letter, and answers
// some letters by adding another letter to the outbox.
func (r *reader) hear(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	l, err := letter.Decode(m.Payload)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO torture.heard (consumer, id, at) VALUES ($1::text, $2::text, $3::int8)", r.consumer.Name, l.ID, int64(history.Now())); err != nil {
		return err
	}
	if l.Topic == letter.Slow && !r.calm {
		time.Sleep(slowness)
	} else if rand.IntN(100) == 0 {
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
	if err := r.suffer(ctx, tx, l); err != nil {
		return err
	}
	if r.consumer.Answers && l.IsAnswered() {
		answer := letter.Letter{ID: letter.NewID(), Topic: letter.Bills, Key: l.Key, N: l.N, Fate: r.fate(), Cause: l.ID}
		return put(ctx, tx, answer)
	}
	return nil
}

// suffer causes the failure that is the fate of the letter.
func (r *reader) suffer(ctx context.Context, tx pgx.Tx, l letter.Letter) error {
	switch l.Fate {
	case letter.Poison:
		return fail()
	case letter.Flaky:
		if !r.calm && rand.IntN(2) == 0 {
			return fail()
		}
	case letter.Passing:
		if !r.calm && rand.IntN(2) == 0 {
			return pass(ctx, tx)
		}
	case letter.Severed:
		if !r.calm && rand.IntN(8) > 0 {
			return sever(ctx, tx)
		}
	case letter.BrokenSQL:
		_, err := tx.Exec(ctx, "SELECT 1 / 0")
		return err
	case letter.Swallows:
		_, _ = tx.Exec(ctx, "SELECT 1 / 0")
	case letter.BrokenCommit:
		// The value contains the consumer. Two consumers that insert the same values twice, in an
		// interleaved order, would deadlock at COMMIT.
		_, err := tx.Exec(ctx, "INSERT INTO torture.once VALUES ($1::text), ($1::text)", r.consumer.Name+" "+l.ID)
		return err
	}
	return nil
}

// fail returns an error or panics.
func fail() error {
	if rand.IntN(3) == 0 {
		panic(errPlanned)
	}
	return errPlanned
}

// pass aborts the transaction of a handler with a transient error of the database, such as a lock
// timeout or a lack of memory.
func pass(ctx context.Context, tx pgx.Tx) error {
	codes := []string{"55P03", "53200", "53400", "08006", "57014", "40001", "40P01"}
	_, err := tx.Exec(ctx, "DO $$BEGIN RAISE EXCEPTION 'it passes' USING ERRCODE = '"+codes[rand.IntN(len(codes))]+"'; END$$")
	return err
}

// sever terminates the session of a handler. The handler reports the error or ignores it.
func sever(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
	if rand.IntN(4) == 0 {
		return nil
	}
	return err
}
