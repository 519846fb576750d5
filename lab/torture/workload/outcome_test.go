package workload

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/history"
)

func TestOutcomesAreToldApart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		result idem.Result
		err    error
		want   history.Outcome
	}{
		{idem.Result{}, nil, history.Executed},
		{idem.Result{Rejected: true}, nil, history.Executed},
		{idem.Result{Replayed: true}, nil, history.Replayed},
		{idem.Result{}, &idem.MismatchError{}, history.Mismatch},
		{idem.Result{}, &idem.InProgressError{}, history.InProgress},
		{idem.Result{}, &idem.OutcomeUnknownError{Err: context.DeadlineExceeded}, history.Unknown},
		{idem.Result{}, fmt.Errorf("%w: because", idem.ErrTxEnded), history.Ended},
		{idem.Result{}, idem.ErrTxAborted, history.Aborted},
		{idem.Result{}, &idem.ResponseTooLargeError{}, history.TooLarge},
		{idem.Result{}, &idem.UnreadableError{Err: errors.New("unknown key")}, history.Unreadable},
		{idem.Result{}, errDeliberate, history.FnFailed},
		{idem.Result{}, context.DeadlineExceeded, history.Cancelled},
		{idem.Result{}, context.Canceled, history.Cancelled},
		{idem.Result{}, &pgconn.PgError{Code: "40001"}, history.Conflict},
		{idem.Result{}, &pgconn.PgError{Code: "57P01"}, history.Failed},
		{idem.Result{}, errors.New("anything else"), history.Failed},
	} {
		if got := answerOf(test.result, test.err); got.Outcome != test.want {
			t.Errorf("%+v, %v: %s, want %s", test.result, test.err, got.Outcome, test.want)
		}
	}
}

// If a COMMIT of the worker may have happened, the history must not say that it failed.
func TestAnOwnCommitWithoutAnAnswerMayHaveHappened(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want bool
	}{
		{errors.New("connection reset"), true},
		{context.DeadlineExceeded, true},
		{&pgconn.PgError{Severity: "FATAL", Code: "57P01"}, true},
		{&pgconn.PgError{Severity: "PANIC", Code: "XX000"}, true},
		{&pgconn.PgError{Severity: "ERROR", Code: "40001"}, false},
		{pgx.ErrTxCommitRollback, false},
		{fmt.Errorf("tx is closed: %w", pgx.ErrTxClosed), false},
	} {
		answer := afterOwnCommit(&history.Return{Outcome: history.Executed, ExecutionID: "x"}, test.err)
		if got := answer.Outcome == history.Unknown; got != test.want || answer.ExecutionID != "x" {
			t.Errorf("%v: %+v", test.err, answer)
		}
	}
}
