package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// resolve asks the record what became of a COMMIT that was not acknowledged because of cause. It makes the same claim again.
// A record with our operation id says that it was committed. A claim that succeeds says that it was not and never will be,
// because the transaction that held the key is over. A key that is held says that it is still under way.
//
// It goes on, within limit, after the end of the caller's context: the caller is better served by the truth than by speed.
func (x *execution) resolve(ctx context.Context, limit, ttl time.Duration, cause error) (ending, error) {
	x.trace.event(EventOutcomeUnknown, cause)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	expiry := x.claimedAt.Add(ttl) // of the record that may have been committed, at the earliest
	for pause := pollPause; ; {
		found, err := x.claim(bounded)
		switch {
		case err != nil && !txn.Transient(err) && bounded.Err() == nil:
			return failed, x.unknownBecause(errors.Join(cause, err))
		case err != nil, found == held: // Postgres cannot be asked, or the COMMIT is still under way
		case found == answered && x.loading.Ours():
			x.trace.event(EventResolvedCommitted, nil)
			x.recall()
			return recorded, nil
		case found == running && x.loading.Ours():
			x.trace.event(EventResolvedCommitted, nil)
			return holding, nil
		default:
			return x.notOurs(found, expiry, cause)
		}
		if txn.Sleep(bounded, pause.Next()) != nil {
			return failed, x.unknownBecause(cause)
		}
	}
}

// recall makes the response of our own record the one that is at hand: whatever becomes of what was stored, this caller is
// told what was committed. A record without a response stays as it is, and so does one of an operation that others have completed.
func (x *execution) recall() {
	if r := &x.record; r.State != store.Processing && x.sent != nil {
		r.Header, r.Body, r.Closed = x.sent.Header, x.sent.Body, false
	}
}

// notOurs tells what follows from a key that is free, or has the record of another execution. If our own may have come and
// gone before that, nothing tells any more what became of it.
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
	return undone, cause
}

func (x *execution) unknownBecause(cause error) error {
	return &OutcomeUnknownError{OperationID: x.key.OperationID, Err: cause}
}
