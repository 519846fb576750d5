package contestant

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Pipelined is the plain transaction in a single round trip: BEGIN, the statements of the business
// and COMMIT in one batch. That is the best that pgx can do where no statement depends on the
// result of another. A request that is repeated is executed again.
func Pipelined() Contestant {
	return Contestant{
		Name: NamePipelined, Repeats: true, Recordless: true,
		Open: func(_ context.Context, place Place) (Runner, error) {
			return pipelined{pooled{place.Pool}}, nil
		},
	}
}

type pipelined struct{ pooled }

// Do cannot hold between the statements and COMMIT, so it holds in front of both: no connection is
// held then.
func (p pipelined) Do(ctx context.Context, call Call) (Answer, error) {
	call.hold()
	batch := &pgx.Batch{}
	batch.Queue("begin")
	call.queue(batch)
	batch.Queue("commit")
	return Answer{Body: call.Body}, p.pool.SendBatch(ctx, batch).Close()
}

// queue adds the statements of the business to a batch.
func (c Call) queue(batch *pgx.Batch) {
	for _, s := range c.Business(c.Key) {
		batch.Queue(s.SQL, s.Args...)
	}
}
