package workload

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/history"
)

// batch is many calls of DoTx in one transaction. Their answers become true when the transaction
// commits, so the history gives all of them the beginning and the end of the batch.
type batch []*call

// make executes the calls and records when the batch began, when it ended, and the outcomes.
func (b batch) make() history.Outcome {
	begun := history.Now()
	for _, c := range b {
		c.inBatch = true
		c.history.Append(history.Event{At: begun, Kind: history.KindCall, Op: c.op, Call: c.call()})
	}
	last := b[len(b)-1]
	ctx, cancel := context.WithTimeout(context.Background(), last.timeout)
	defer cancel()
	answers := b.ask(ctx, last)
	ended := history.Now()
	for i, c := range b {
		c.history.Append(history.Event{At: ended, Kind: history.KindReturn, Op: c.op, Return: answers[i]})
	}
	return answers[len(b)-1].Outcome
}

// ask executes the calls in one transaction and returns their outcomes. If a call fails and its
// caller does not continue, the transaction is rolled back and the later calls are not made.
func (b batch) ask(ctx context.Context, last *call) []*history.Return {
	answers := make([]*history.Return, len(b))
	for i := range b {
		answers[i] = &history.Return{Outcome: history.Failed}
	}
	conn, err := last.pool.Acquire(ctx)
	if err != nil {
		return answers
	}
	defer conn.Release() // after commit has returned
	tx, err := conn.BeginTx(ctx, last.txOptions)
	if err != nil {
		return answers
	}
	defer tx.Rollback(context.Background())
	goesOn := true
	for i, c := range b {
		if !goesOn {
			break
		}
		answers[i], goesOn = c.within(ctx, tx, func(tx pgx.Tx) (idem.Response, error) { return c.do(ctx, tx) })
	}
	if goesOn {
		err = commit(ctx, tx)
	}
	for i, answer := range answers {
		if goesOn {
			answers[i] = afterOwnCommit(answer, err)
		} else {
			answers[i] = undone(answer)
		}
	}
	return answers
}
