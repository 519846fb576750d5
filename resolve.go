package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// resolve finds out the outcome of a COMMIT that was not acknowledged because of cause. It claims
// the key again until it finds one of these:
//
//   - A record with the id of this execution: the COMMIT happened.
//   - A free key, or the record of another execution: the COMMIT did not happen and never will,
//     because the transaction that held the key has ended. See notOurs for the exception.
//   - A key in progress: the COMMIT is still in progress, so resolve waits and claims again.
//
// resolve continues after the end of the caller's context, until limit has passed, because the
// outcome is worth more to the caller than an early return.
func (x *execution) resolve(ctx context.Context, limit, ttl time.Duration, cause error) (ending, error) {
	x.trace.event(EventOutcomeUnknown, cause)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	expiry := x.claimedAt.Add(ttl) // the earliest time at which the record of this execution may have expired
	for pause := pollPause; ; {
		found, err := x.claim(bounded)
		switch {
		case err != nil && !txn.Transient(err) && bounded.Err() == nil:
			return failed, x.unknownBecause(errors.Join(cause, err))
		case err != nil, found == held: // the server is unavailable, or the COMMIT is in progress
		case found == answered && x.loading.Ours():
			x.trace.event(EventResolvedCommitted, nil)
			x.restoreResponse()
			return recorded, nil
		case found == running && x.loading.Ours():
			x.trace.event(EventResolvedCommitted, nil)
			return lookAgain, nil
		default:
			return x.notOurs(found, expiry, cause)
		}
		if txn.Sleep(bounded, pause.Next()) != nil {
			return failed, x.unknownBecause(cause)
		}
	}
}

// restoreResponse replaces the response in the loaded record of this execution by the response that
// was sent with COMMIT. So the caller gets the response even if this process cannot decrypt the
// stored form. restoreResponse leaves a record without a response as it is, and also the record of
// an operation that another process completed.
func (x *execution) restoreResponse() {
	if r := &x.record; r.State != db.Processing && x.sent != nil {
		r.Header, r.Body, r.Closed = x.sent.Header, x.sent.Body, false
	}
}

// notOurs returns the ending if resolve finds the key free or with the record of another execution.
// If resolve finds this only after expiry, the record of this execution may have been committed and
// have expired, so the outcome stays unknown.
func (x *execution) notOurs(found finding, expiry time.Time, cause error) (ending, error) {
	seen := x.record.CompletedAt
	if found == claimed {
		x.tx.Close()
		seen = x.claimedAt
	} else if seen.IsZero() {
		seen = x.record.LoadedAt
	}
	if !seen.Before(expiry) {
		return failed, x.unknownBecause(cause)
	}
	x.trace.event(EventResolvedRolledBack, nil)
	switch {
	case found == answered:
		return recorded, nil
	case txn.TooSlow(cause):
		return failed, tooSlow(cause)
	}
	return rolledBack, cause
}

func (x *execution) unknownBecause(cause error) error {
	return &OutcomeUnknownError{ExecutionID: x.key.ExecutionID, Err: cause}
}
