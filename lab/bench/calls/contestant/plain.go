package contestant

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Plain is a transaction with only the statements of the business. A repeated request is executed
// again. Plain is the base with which all other contestants are compared in calls with new keys.
var Plain = Contestant{Name: "plain transaction", Repeats: true, Recordless: true, Open: pooled(plain)}

func plain(ctx context.Context, pool *pgxpool.Pool, call Call) (Answer, error) {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return call.Execute(ctx, tx) })
	return Answer{Body: call.Body}, err
}

// Pipelined is the plain transaction in a single round trip: BEGIN, the statements of the business
// and COMMIT in one batch. This is the best that pgx can do if no statement depends on the result
// of another. A repeated request is executed again.
var Pipelined = Contestant{Name: "plain, pipelined", Repeats: true, Recordless: true, Open: pooled(pipelined)}

// pipelined calls Hold before the batch, when it uses no connection. It cannot pause later, because
// the statements and COMMIT are sent together.
func pipelined(ctx context.Context, pool *pgxpool.Pool, call Call) (Answer, error) {
	call.hold()
	batch := &pgx.Batch{}
	batch.Queue("begin")
	call.queue(batch)
	batch.Queue("commit")
	return Answer{Body: call.Body}, pool.SendBatch(ctx, batch).Close()
}

// queue adds the statements of the call's business to a batch.
func (c Call) queue(batch *pgx.Batch) {
	for _, s := range c.Business(c.Key) {
		batch.Queue(s.SQL, s.Args...)
	}
}

// Lookup reads a recorded response with a SELECT by primary key. This is the minimum cost of a
// replay. Lookup is the base with which all other contestants are compared in replays. The first
// call of a key records the response with idem.Do.
var Lookup = Contestant{Name: "SELECT by primary key", Tables: Idem.Tables, Open: pooled(lookup)}

func lookup(ctx context.Context, pool *pgxpool.Pool, call Call) (Answer, error) {
	answer := Answer{Replayed: true}
	err := pool.QueryRow(ctx, "select body from idem.records where scope = $1 and key = $2", Scope, call.Key).Scan(&answer.Body)
	if errors.Is(err, pgx.ErrNoRows) {
		return doIdem(ctx, pool, call)
	}
	return answer, err
}
