package workload

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
)

// answerOf converts the results of a call into its return event.
func answerOf(result idem.Result, err error) *history.Return {
	answer := &history.Return{Outcome: outcomeOf(result, err)}
	if err != nil {
		answer.Err = err.Error()
	}
	if mismatch, ok := errors.AsType[*idem.MismatchError](err); ok {
		answer.Created = mismatch.CreatedAt.UnixMicro()
	}
	if unknown, ok := errors.AsType[*idem.OutcomeUnknownError](err); ok {
		answer.ExecutionID = unknown.ExecutionID
	}
	if !answer.Outcome.Answered() {
		return answer
	}
	body, _ := decode(result.Body) // the checker notices a body that cannot be decoded
	answer.Rejected, answer.ExecutionID = result.Rejected, result.ExecutionID
	answer.Digest, answer.Maker = ledger.Digest(result.Response), body.Maker
	answer.Created, answer.Completed, answer.Expires =
		result.CreatedAt.UnixMicro(), result.CompletedAt.UnixMicro(), result.ExpiresAt.UnixMicro()
	return answer
}

func outcomeOf(result idem.Result, err error) history.Outcome {
	switch {
	case err == nil && result.Replayed:
		return history.Replayed
	case err == nil:
		return history.Executed
	}
	for _, known := range []struct {
		err     error
		outcome history.Outcome
	}{
		{idem.ErrOutcomeUnknown, history.Unknown}, {idem.ErrTxEnded, history.Ended}, {idem.ErrMismatch, history.Mismatch},
		{idem.ErrInProgress, history.InProgress}, {idem.ErrTxAborted, history.Aborted}, {idem.ErrResponseTooLarge, history.TooLarge},
		{idem.ErrUnreadable, history.Unreadable},
		{errDeliberate, history.FnFailed}, {context.DeadlineExceeded, history.Cancelled}, {context.Canceled, history.Cancelled},
	} {
		if errors.Is(err, known.err) {
			return known.outcome
		}
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && (pgErr.Code == "40001" || pgErr.Code == "40P01") {
		return history.Conflict
	}
	return history.Failed
}

// maybeCommitted reports whether a COMMIT of the worker that returned err may have been executed.
func maybeCommitted(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) {
		return false
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return !ok || pgErr.Severity == "FATAL" || pgErr.Severity == "PANIC"
}
