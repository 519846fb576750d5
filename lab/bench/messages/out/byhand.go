package out

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/runner"
)

// ByHand is the outbox that many people write by hand: a table with a sequence number, and a loop
// that publishes. The loop locks the first rows with SKIP LOCKED, publishes them, deletes them and
// commits.
//
// This outbox has three weaknesses. A failing message stops the loop. A second loop would publish
// out of order. A Publish that hangs keeps the transaction open.
var ByHand = Contestant{
	Name: "outbox by hand", Relays: true,
	Prepare: func(ctx context.Context, dsn string) error {
		return runner.Execute(ctx, dsn, `create table outbox (seq bigint generated always as identity primary key, id uuid not null,
			aggregatetype varchar(255) not null, aggregateid varchar(255) not null, type varchar(255) not null, payload bytea)`)
	},
	Open: func(place Place) (Runner, error) { return byHand{place}, nil },
}

type byHand struct{ place Place }

const insertByHand = "insert into outbox (id, aggregatetype, aggregateid, type, payload) values ($1, $2, $3, 'OrderPlaced', $4)"

func (b byHand) Place(ctx context.Context, order Order) error {
	return pgx.BeginFunc(ctx, b.place.Pool, func(tx pgx.Tx) error {
		if err := save(ctx, tx, order); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, insertByHand, order.ID, topic, keyOf(order), order.payload())
		return err
	})
}

func (b byHand) Relay(ctx context.Context) error {
	for {
		n, err := b.relay(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("outbox by hand: %w", err)
		case n > 0:
			continue
		}
		select {
		case <-time.After(pollByHand):
		case <-ctx.Done():
			return nil
		}
	}
}

const pollByHand = 10 * time.Millisecond

// row is a message in the outbox table. The loop reads the payload although the broker of the
// benchmark does not need it.
type row struct {
	Seq     int64
	ID      string
	Payload []byte
}

// relay publishes the first messages in the table, up to a thousand, and returns their number.
func (b byHand) relay(ctx context.Context) (n int, err error) {
	err = pgx.BeginFunc(ctx, b.place.Pool, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, "select seq, id::text, payload from outbox order by seq limit 1000 for update skip locked")
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		if err != nil || len(all) == 0 {
			return err
		}
		n = len(all)
		seqs, ids := make([]int64, n), make([]string, n)
		for i, r := range all {
			seqs[i], ids[i] = r.Seq, r.ID
		}
		if err := b.place.Sink.Publish(ctx, ids...); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "delete from outbox where seq = any($1)", seqs)
		return err
	})
	return n, err
}
