package workload

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
)

// The kinds of fn, by what it does. Each writes its effect first, so that there is something to
// undo.
const (
	fnOK          = "ok"
	fnSlow        = "slow"            // may take longer than the TTL
	fnSavepoint   = "savepoint"       // a statement fails under a savepoint, which is allowed
	fnFail        = "fail"            // returns an error
	fnFailLate    = "slow, then fail" // returns an error late, when other calls are waiting
	fnReject      = history.Reject
	fnPanic       = "panic"
	fnGoexit      = "goexit"
	fnSwallow     = "swallow an SQL error" // returns a response although a statement failed
	fnTooLarge    = "too large a response"
	fnCancel      = "end the context" // the context ends about when COMMIT is sent
	fnCommit      = history.Commit
	fnRollback    = history.Rollback
	fnRollbackSQL = history.RollbackSQL
	fnRestartSQL  = history.RestartSQL
	fnCommitSQL   = history.CommitSQL
)

var errDeliberate = errors.New("fn fails, as planned")

const maxResponse = 128 << 10

// response returns the response of one run of fn. No two runs have the same response.
func (c *call) response(run int) idem.Response {
	padding := c.padding
	if c.fn == fnTooLarge {
		padding = maxResponse
	}
	body := Answer{Maker: c.op, Run: run, Padding: strings.Repeat("x", padding)}.encode()
	if c.verb == history.DoJSON && c.fn != fnReject {
		return idem.Response{Status: 200, Body: body}
	}
	return idem.Response{
		Status: 201,
		Header: map[string][]string{"Location": {"/orders/" + c.op.String()}, "Set-Cookie": {"a=1, b=2", "c=\"3\""}},
		Body:   body,
	}
}

// do is the fn of the call. It records the run, writes the effect, and then behaves as planned.
func (c *call) do(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
	executionID, _ := idem.ExecutionID(tx)
	c.runs++
	c.history.Append(history.Event{At: history.Now(), Kind: history.KindRun, Op: c.op, Run: executionID})
	resp := c.response(c.runs)
	effect := ledger.Effect{
		ExecutionID: executionID, Op: c.op, Scope: c.scope, Key: c.key, Payload: c.payload,
		Digest: ledger.Digest(resp), TTL: c.ttl.Microseconds(),
	}
	if err := c.makeEffect(ctx, tx, &effect); err != nil {
		return idem.Response{}, err
	}
	return c.behave(ctx, tx, resp)
}

// makeEffect writes the row of the effect and the transfer, in either order.
func (c *call) makeEffect(ctx context.Context, tx pgx.Tx, effect *ledger.Effect) error {
	transfer := func() error { return c.transfer.Write(ctx, tx, effect.ExecutionID) }
	note := func() error { return effect.Note(ctx, tx, c.hash()) }
	steps := []func() error{note, transfer}
	if c.early {
		steps = []func() error{transfer, note}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) behave(ctx context.Context, tx pgx.Tx, resp idem.Response) (idem.Response, error) {
	switch c.fn {
	case fnSlow:
		time.Sleep(c.slow)
	case fnSavepoint:
		_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select 1/0")
			return err
		})
	case fnFail:
		return resp, errDeliberate
	case fnFailLate:
		time.Sleep(c.slow)
		return resp, errDeliberate
	case fnReject:
		return idem.Response{}, idem.Reject(resp)
	case fnPanic:
		panic(errDeliberate)
	case fnGoexit:
		runtime.Goexit()
	case fnSwallow:
		_, _ = tx.Exec(ctx, "select 1/0")
	case fnCancel:
		time.AfterFunc(c.cancel, c.endContext)
	case fnCommit:
		_ = tx.Commit(ctx)
	case fnRollback:
		_ = tx.Rollback(ctx)
	case fnRollbackSQL:
		_, _ = tx.Exec(ctx, "rollback")
	case fnRestartSQL:
		_, _ = tx.Exec(ctx, "rollback")
		_, _ = tx.Exec(ctx, "begin")
	case fnCommitSQL:
		_, _ = tx.Exec(ctx, "commit")
		_, _ = tx.Exec(ctx, "begin")
	}
	return resp, nil
}

// Answer is the body of every response. It names the call and the run of fn that produced it, so
// that a checker can tell to which execution a response belongs.
type Answer struct {
	Maker   history.Op `json:"maker"`
	Run     int        `json:"run"`
	Padding string     `json:"padding"`
}

func (a Answer) encode() []byte {
	body, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	return body
}

func decode(body []byte) (a Answer, err error) {
	err = json.Unmarshal(body, &a)
	return a, err
}
