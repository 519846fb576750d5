package idemtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
	"github.com/idem-go/idem/operation"
)

// mostPoints is the maximum number of statements per execution that a suite breaks one by one.
const mostPoints = 64

// fault describes one kind of fault that a suite injects into an execution.
type fault struct {
	kind faultproxy.Kind
	says string
	// leaves: the context of the caller is canceled when the fault fires.
	leaves bool
	// commits: the fault applies only to statements that commit.
	commits bool
	// once: the fault applies only to the first such statement, because it takes seconds.
	once bool
}

// faults lists all faults. says is a format for the number and the text of the statement. Lose must
// come before the faults with commits, because it teaches underFaults which statements commit.
var faults = []fault{
	{kind: faultproxy.Cut, says: "the connection was cut before statement %d (%s)"},
	{kind: faultproxy.Lose, says: "the answer to statement %d (%s) was lost"},
	{kind: faultproxy.Conflict, says: "statement %d in the transaction (%s) was answered with SQLSTATE 40001"},
	{kind: faultproxy.Tell, leaves: true, says: "the caller went away at statement %d (%s)"},
	{kind: faultproxy.Cut, leaves: true, commits: true, says: "the connection was cut before statement %d (%s; COMMIT), and the caller went away"},
	{kind: faultproxy.Outage, once: true, commits: true, says: "every connection was cut before statement %d (%s; COMMIT), and the database was unavailable until the caller was answered"},
}

// underFaults injects each fault at each statement and retries as a client would. The statement
// number n goes up until an execution has fewer statements than that. After the first finding,
// underFaults continues with the next fault.
func (u *suite) underFaults() {
	u.Helper()
	if testing.Short() {
		u.underFewFaults()
		return
	}
	// commits holds the numbers of the statements that were answered by COMMIT. The fault Lose
	// fills it in.
	commits := map[int]bool{}
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
			return // every other fault would time out too and report the same
		}
	}
}

// underFewFaults is the short version of underFaults: it breaks the first COMMIT with each fault
// except the slow ones. The serialization failure goes to the first statement in a transaction.
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

// underFault runs one trial: it injects f at statement n, counted from 0. shot.Fired is false if
// the execution had fewer statements. sound is false if the fault has not fired or a promise was
// broken.
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
			// The proxy cut all connections of the pool. Reset discards them, so that the checks
			// below do not run into a dead connection.
			if f.kind == faultproxy.Outage {
				s.pool.Reset()
			}
			// The server answered 40001, and the handler ignored it or ended its transaction.
			if broken, is := brokenTx(s, first); is && f.kind == faultproxy.Conflict {
				u.breaks(broken, "%s; then the caller was answered %s", fmt.Sprintf(f.says, n+1, brief(shot)), first.brief)
				return
			}
			sound = u.survives(s, fmt.Sprintf(f.says, n+1, brief(shot)), base, first)
		}
	})
	return shot, sound
}

// brief returns the SQL of a shot, shortened for a report.
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

// survives checks the state of the database after a fault, then retries until the caller has a
// final answer and checks again. Finally it sends a duplicate, which must have no effect and get
// the same answer. It returns false if a promise was broken.
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
