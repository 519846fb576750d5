package contestant

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Pipelined is the plain transaction in a single round trip: BEGIN, the statements of the business
// and COMMIT in one batch. This is the best that pgx can do if no statement depends on the result
// of another. A repeated request is executed again.
func Pipelined() Contestant {
	return Contestant{
		Name: NamePipelined, Repeats: true, Recordless: true,
		Open: func(_ context.Context, place Place) (Runner, error) {
			return pipelined{pooled{place.Pool}}, nil
		},
	}
}

type pipelined struct{ pooled }

// Do calls Hold before the batch, because it cannot pause between the statements and COMMIT. No
// connection is in use at that time.
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
