package idemtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
	"github.com/idem-go/idem/operation"
)

// maxStatements is the maximum number of statements per execution that a suite breaks one by one.
const maxStatements = 64

// fault describes one kind of fault that a suite injects into an execution.
type fault struct {
	kind   faultproxy.Kind
	format string
	// callerLeaves: the context of the caller is canceled when the fault fires.
	callerLeaves bool
	// commits: the fault applies only to statements that commit.
	commitsOnly bool
	// once: the fault applies only to the first such statement, because it takes seconds.
	firstOnly bool
}

// faults lists all faults. format is for the number and the text of the statement. Lose must come
// before the faults with commitsOnly, because it shows injectFaults which statements commit.
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

// injectFaults injects each fault at each statement and retries as a client would. The statement
// number n goes up until an execution has fewer statements than that. After the first finding,
// injectFaults continues with the next fault.
func (u *suite) injectFaults() {
	u.Helper()
	if testing.Short() {
		u.injectFewFaults()
		return
	}
	// commits holds the numbers of the statements that were answered by COMMIT. The fault Lose
	// fills it in.
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
			return // every other fault would time out too and report the same
		}
	}
}

// injectFewFaults is the short version of injectFaults: it breaks the first COMMIT with each fault
// except the slow ones. The serialization failure goes to the first statement in a transaction.
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
// the execution had fewer statements. ok is false if the fault has not fired or a promise was
// broken.
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
			// The server answered 40001, and the handler ignored it or ended its transaction.
			if broken, is := brokenTx(s, first); is && f.kind == faultproxy.Conflict {
				u.breaks(broken, "%s; then the caller was answered %s", fmt.Sprintf(f.format, n+1, statementOf(result)), first.brief)
				return
			}
			ok = u.checkAfterFault(s, fmt.Sprintf(f.format, n+1, statementOf(result)), base, first)
		}
	})
	return result, ok
}

// statementOf returns the SQL of a result, shortened for a report.
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
