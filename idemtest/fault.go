package idemtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
	"github.com/idem-go/idem/operation"
)

// mostPoints bounds the statements of one execution that are broken one by one.
const mostPoints = 64

// faults are what is done to each statement of an execution.
var faults = []struct {
	kind faultproxy.Kind
	says string
}{
	{faultproxy.Cut, "the connection was cut before statement %d (%s)"},
	{faultproxy.Lose, "the answer to statement %d (%s) was lost"},
	{faultproxy.Conflict, "statement %d in the transaction (%s) was answered with SQLSTATE 40001"},
	{faultproxy.Tell, "the caller went away at statement %d (%s)"},
}

// underFaults breaks each statement in each way, and has the caller try again. A way that has found something is over.
func (u *suite) underFaults() {
	u.Helper()
	for _, fault := range faults {
		for n := range mostPoints {
			if fired, sound := u.underFault(fault.kind, fault.says, n); !fired || !sound {
				break
			}
		}
		if u.isBroken(keyFree) {
			return // the others would wait for as long, and say the same
		}
	}
}

// underFault breaks the statement behind n others. It has not fired if there were not that many.
func (u *suite) underFault(kind faultproxy.Kind, says string, n int) (fired, sound bool) {
	u.Helper()
	u.stage(0, func(s *subject) {
		base := u.balance(s)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		fault := faultproxy.Fault{Kind: kind, At: n}
		if kind == faultproxy.Tell {
			fault.Then = cancel
		}
		s.proxy.Arm(fault)
		first := u.call(ctx, s.request)
		shot := s.proxy.Disarm()
		if fired = shot.Fired; fired {
			sound = u.survives(s, fmt.Sprintf(says, n+1, brief(shot)), base, first)
		}
	})
	return fired, sound
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
