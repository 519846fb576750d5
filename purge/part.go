package purge

import (
	"context"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// find asks for a part. Its size cannot be read while somebody has locked it against all others, as VACUUM FULL does.
func (s *sweep) find(ctx context.Context, part *store.Part) error {
	for {
		err := s.peek(ctx, part)
		switch {
		case !txn.LockTimedOut(err):
			return err
		case !s.taken && !s.options.DryRun:
			return ended(Lock)
		}
		if err := s.holder.wait(ctx, Lock); err != nil {
			return err
		}
	}
}

// peek makes a request in a transaction that is bounded as a portion is, and changes nothing.
func (s *sweep) peek(ctx context.Context, request txn.Request) error {
	bounded, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	tx, err := s.engine.Open(bounded, s.limits, request)
	if err == nil {
		tx.Close()
	}
	return err
}

// walkPart walks a part from a block to its present end. What is appended meanwhile has not expired.
func (s *sweep) walkPart(ctx context.Context, part *store.Part, block int64) error {
	statement := deletionOf(s.table, part)
	if s.options.DryRun {
		statement = countingOf(s.table, part)
	}
	for block < part.Pages {
		p := &portion{
			statement: statement, limits: s.limits, rest: s.table.rest(s.options),
			from: block, to: min(block+s.pace.pages, part.Pages),
		}
		pause, err := s.step(ctx, part, p)
		if err != nil {
			return err
		}
		if p.done {
			block = p.to
		}
		if err := txn.Sleep(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}
