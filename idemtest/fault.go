package idemtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
	"github.com/idem-go/idem/operation"
)

// mostPoints bounds the statements of one execution that are broken one by one.
const mostPoints = 64

// fault is what is done to each statement of an execution, or to those that commit alone.
type fault struct {
	kind    faultproxy.Kind
	says    string
	leaves  bool // the caller goes away with it
	commits bool
	once    bool // at the first of those alone: it takes seconds
}

var faults = []fault{
	{kind: faultproxy.Cut, says: "the connection was cut before statement %d (%s)"},
	{kind: faultproxy.Lose, says: "the answer to statement %d (%s) was lost"},
	{kind: faultproxy.Conflict, says: "statement %d in the transaction (%s) was answered with SQLSTATE 40001"},
	{kind: faultproxy.Tell, leaves: true, says: "the caller went away at statement %d (%s)"},
	{kind: faultproxy.Cut, leaves: true, commits: true, says: "the connection was cut before statement %d (%s; COMMIT), and the caller went away"},
	{kind: faultproxy.Outage, once: true, commits: true, says: "every connection was cut before statement %d (%s; COMMIT), and the database was unavailable until the caller was answered"},
}

// underFaults breaks each statement in each way, and has the caller try again. A way that has found something is over.
func (u *suite) underFaults() {
	u.Helper()
	if testing.Short() {
		u.underFewFaults()
		return
	}
	commits := map[int]bool{} // by the number of the statement
	for _, fault := range faults {
		for n := range mostPoints {
			if fault.commits && !commits[n] {
				continue
			}
			shot, sound := u.underFault(fault, n)
			if !shot.Fired || !sound || fault.once {
				break
			}
			commits[n] = commits[n] || shot.Commit
		}
		if u.isBroken(keyFree) {
			return // the others would wait for as long, and say the same
		}
	}
}

// underFewFaults breaks the first COMMIT alone, in each way that takes no long time, and the first statement in a transaction.
func (u *suite) underFewFaults() {
	u.Helper()
	commit := max(0, u.flightsToCommit())
	for _, fault := range faults {
		switch {
		case fault.once:
		case fault.kind == faultproxy.Conflict:
			u.underFault(fault, 0)
		default:
			u.underFault(fault, commit)
		}
	}
}

// underFault breaks the statement behind n others. It has not fired if there were not that many.
func (u *suite) underFault(f fault, n int) (shot faultproxy.Shot, sound bool) {
	u.Helper()
	u.stage(0, func(s *subject) {
		base := u.balance(s)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		armed := faultproxy.Fault{Kind: f.kind, At: n}
		if f.leaves {
			armed.Then = cancel
		}
		s.proxy.Arm(armed)
		first := u.call(ctx, s.request)
		if shot = s.proxy.Disarm(); shot.Fired {
			if f.kind == faultproxy.Outage {
				s.pool.Reset()
			}
			if broken, is := brokenTx(s, first); is && f.kind == faultproxy.Conflict {
				u.breaks(broken, "%s; then the caller was answered %s", fmt.Sprintf(f.says, n+1, brief(shot)), first.brief)
				return
			}
			sound = u.survives(s, fmt.Sprintf(f.says, n+1, brief(shot)), base, first)
		}
	})
	return shot, sound
}

func brief(shot faultproxy.Shot) string {
	sql := shot.SQL
	if len(sql) > 80 {
		sql = sql[:80] + "…"
	}
	if shot.Commit {
		sql += "; COMMIT"
	}
	return sql
}

// survives holds what a fault has left, and what retries make of it, against the promises.
func (u *suite) survives(s *subject, what string, base books, first answer) bool {
	u.Helper()
	if !u.truthful(what+"; then the caller was answered "+first.brief, base, u.balance(s), first) {
		return false
	}
	last, final := u.insist(s.request)
	what += fmt.Sprintf("; the caller was answered %s, and in the end %s", first.brief, last.brief)
	switch {
	case !final:
		return u.breaks(keyFree, "%s, for %v", what, u.patience)
	case errors.Is(last.err, operation.ErrParked) && u.parks:
		return true
	case errors.Is(last.err, operation.ErrParked):
		return u.breaks(goesOn, "%s", what)
	case last.fate == refused:
		return u.breaks(failureNotFinal, "%s", what)
	}
	one := u.balance(s)
	if !u.truthful(what, base, one, last) || first.fate == done && !u.repeats(what, first, last) {
		return false
	}
	duplicate, _ := u.insist(s.request)
	return u.unchanged(what+"; then", base, one, u.balance(s)) && u.repeats(what+"; then", last, duplicate)
}
