package idemtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
	"github.com/idem-go/idem/operation"
)

// maxStatements bounds the number of trials per fault: each trial injects the fault at a later
// statement of an execution.
const maxStatements = 64

// fault describes one kind of fault that a suite injects into an execution.
type fault struct {
	kind   faultproxy.Kind
	format string
	// callerLeaves says that the context of the caller is canceled when the fault fires.
	callerLeaves bool
	// commitsOnly says that the fault is injected only at statements that commit.
	commitsOnly bool
	// firstOnly says that only the first suitable statement gets the fault, because a trial of this
	// fault takes seconds.
	firstOnly bool
}

// faults lists all faults. Each format takes the number and the SQL of the statement. Lose must
// come before the faults with commitsOnly, because the trials of Lose show which statements commit.
var faults = []fault{
	{kind: faultproxy.Cut, format: "the connection was cut before statement %d (%s)"},
	{kind: faultproxy.Lose, format: "the answer to statement %d (%s) was lost"},
	{kind: faultproxy.Conflict, format: "statement %d in the transaction (%s) was answered with SQLSTATE 40001"},
	{kind: faultproxy.Notify, callerLeaves: true, format: "the caller went away at statement %d (%s)"},
	{kind: faultproxy.Cut, callerLeaves: true, commitsOnly: true,
		format: "the connection was cut before statement %d (%s; COMMIT), and the caller went away"},
	{kind: faultproxy.Outage, firstOnly: true, commitsOnly: true,
		format: "every connection was cut before statement %d (%s; COMMIT), and the database was unavailable until the caller was answered"},
}

// injectFaults runs a trial for each fault and each statement of an execution. In a trial, the
// fault occurs at that statement, and the suite then retries as a client would. injectFaults
// continues with the next fault after the last statement, or as soon as a trial finds a broken
// promise.
func (u *suite) injectFaults() {
	u.Helper()
	if testing.Short() {
		u.injectFewFaults()
		return
	}
	// commits contains the numbers of the statements that the server answered with COMMIT. The
	// trials of the fault Lose fill this map.
	commits := map[int]bool{}
	for _, fault := range faults {
		for n := range maxStatements {
			if fault.commitsOnly && !commits[n] {
				continue
			}
			result, ok := u.injectFault(fault, n)
			if !result.Fired || !ok || fault.firstOnly {
				break
			}
			commits[n] = commits[n] || result.Commit
		}
		if u.isBroken(keyFree) {
			return // the other faults would time out too and report the same promise
		}
	}
}

// injectFewFaults replaces injectFaults under go test -short. It injects each fault once, at the
// first COMMIT, and leaves out the slow faults. The exception is the serialization failure, which
// occurs at the first statement of a transaction.
func (u *suite) injectFewFaults() {
	u.Helper()
	commit := max(0, u.flightsToCommit())
	for _, fault := range faults {
		switch {
		case fault.firstOnly:
		case fault.kind == faultproxy.Conflict:
			u.injectFault(fault, 0)
		default:
			u.injectFault(fault, commit)
		}
	}
}

// injectFault runs one trial: it injects f at statement n, counted from 0. result.Fired is false if
// the execution had no statement n. ok is false if the fault did not fire or a promise was broken.
func (u *suite) injectFault(f fault, n int) (result faultproxy.Result, ok bool) {
	u.Helper()
	u.trial(0, func(s *subject) {
		base := u.count(s)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		armed := faultproxy.Fault{Kind: f.kind, At: n}
		if f.callerLeaves {
			armed.Then = cancel
		}
		s.proxy.Arm(armed)
		first := u.call(ctx, s.request)
		if result = s.proxy.Disarm(); result.Fired {
			// The proxy cut all connections of the pool. Reset discards them, so that the checks
			// below do not run into a dead connection.
			if f.kind == faultproxy.Outage {
				s.pool.Reset()
			}
			// If the handler ignored the 40001, or ended its transaction because of it, report this mistake
			// and not its consequences.
			if broken, is := brokenTx(s, first); is && f.kind == faultproxy.Conflict {
				u.breaks(broken, "%s; then the caller was answered %s", fmt.Sprintf(f.format, n+1, statementOf(result)), first.brief)
				return
			}
			ok = u.checkAfterFault(s, fmt.Sprintf(f.format, n+1, statementOf(result)), base, first)
		}
	})
	return result, ok
}

// statementOf returns the SQL of the statement at which the fault fired, shortened for a report.
func statementOf(result faultproxy.Result) string {
	sql := result.SQL
	if len(sql) > 80 {
		sql = sql[:80] + "…"
	}
	if result.Commit {
		sql += "; COMMIT"
	}
	return sql
}

// checkAfterFault checks the state of the database after a fault, then retries until the caller has
// a final answer and checks again. Finally it sends a duplicate, which must have no effect and get
// the same answer. It returns false if a promise was broken.
func (u *suite) checkAfterFault(s *subject, what string, base counts, first answer) bool {
	u.Helper()
	if !u.checkCounts(what+"; then the caller was answered "+first.brief, base, u.count(s), first) {
		return false
	}
	last, final := u.retry(s.request)
	what += fmt.Sprintf("; the caller was answered %s, and in the end %s", first.brief, last.brief)
	switch {
	case !final:
		return u.breaks(keyFree, "%s, for %v", what, u.patience)
	case errors.Is(last.err, operation.ErrParked) && u.parks:
		return true
	case errors.Is(last.err, operation.ErrParked):
		return u.breaks(resumes, "%s", what)
	case last.outcome == refused:
		return u.breaks(failureNotFinal, "%s", what)
	}
	one := u.count(s)
	if !u.checkCounts(what, base, one, last) || first.outcome == done && !u.checkReplay(what, first, last) {
		return false
	}
	duplicate, _ := u.retry(s.request)
	return u.checkUnchanged(what+"; then", base, one, u.count(s)) && u.checkReplay(what+"; then", last, duplicate)
}
