package operation

import (
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// Sleep pauses the operation for d, which begins with a commit of all that came earlier and is counted by the database's clock.
// A pause of more than some seconds holds nothing: neither a connection, nor the caller, nor a worker. One that is over while
// no process is there ends when one is.
func Sleep(op *Op, name string, d time.Duration) error {
	s, err := op.enter(store.SleepStep, name)
	if err != nil {
		return err
	}
	defer op.leave()
	remaining := d
	if s.found == nil {
		op.waits(s, d)
	} else if remaining = op.work.until(s.found.DueAt); remaining <= 0 {
		return nil
	}
	return op.waitFor(s, remaining, s.found != nil)
}

// waits has a pause recorded by the next commit.
func (op *Op) waits(s *step, d time.Duration) {
	op.remember(s, store.StepWaiting, nil)
	op.pending[len(op.pending)-1].Pause = max(d, 0)
}

// waitFor waits in memory if that is short, and otherwise leaves the operation to a process that is there when it is due.
func (op *Op) waitFor(s *step, d time.Duration, recorded bool) error {
	if d > longPause {
		if err := op.commit(commit{free: true, at: store.At{Kind: s.kind, Step: s.name, Seq: s.seq, Pause: d}}); err != nil {
			return err
		}
		return op.halt(suspended, nil)
	}
	if !recorded || op.tx != nil || len(op.pending) > 0 {
		if err := op.commit(commit{at: store.At{Kind: s.kind, Step: s.name, Seq: s.seq}}); err != nil {
			return err
		}
	}
	if txn.Sleep(op.ctx, max(d, 0)) != nil {
		return op.interrupted()
	}
	return nil
}
