package idemtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
	"github.com/idem-go/idem/operation"
)

// OperationSuite configures the test suite Operation for an operation of package operation. The
// fields Call and Effects are required.
type OperationSuite struct {
	// New calls Pool to create a database, sets up everything in it that the operation needs, and
	// returns the pool. The suite calls New once for every trial. The cleanups of t run at the end
	// of that trial. If New is nil, the suite calls Pool.
	New func(t testing.TB) *pgxpool.Pool

	// Call calls Do of the operation, with a payload for which the operation succeeds. Call must
	// make the same call each time, key included.
	Call Call

	// Other, Stranger and Next mean the same as in FuncSuite.
	Other, Stranger, Next Call

	// Previous makes the same call as Call, with the code of the previous release of your program.
	// The suite starts operations with Previous, simulates a crash at each statement, and resumes
	// the operations with Call. If Previous is nil, the suite skips these trials.
	Previous Call

	// Parks must be true if the operation makes a call with the policy operation.Once. The suite
	// then accepts that a crash during that call parks the operation.
	Parks bool

	// Effects returns the number of effects so far. It counts the rows that the operation wrote to
	// the database and the calls that it made to the fakes of other systems. A fake must recognize
	// a repeated key if the real system does.
	Effects func(ctx context.Context, pool *pgxpool.Pool) (int, error)

	// Patience and Within mean the same as in HandlerSuite.
	Patience, Within time.Duration
}

// Operation tests that an operation keeps the promises of package operation. It runs the trials of
// Func. It then simulates a crash at each statement of an operation and lets another process resume
// the operation.
func Operation(t testing.TB, s OperationSuite) {
	t.Helper()
	if s.Call == nil || s.Effects == nil {
		t.Fatal("idemtest: Call and Effects are required")
	}
	u := newSuite(t, s.Patience, s.Within)
	u.steps, u.repeated, u.parks = true, oncePerStep, s.Parks
	u.open = func(sc *trialTB) *subject {
		on := u.poolFor(sc, s.New, s.Effects)
		on.countSQL = completedSQL
		on.request, on.other, on.stranger, on.next = on.calls(s.Call), on.calls(s.Other), on.calls(s.Stranger), on.calls(s.Next)
		on.previous = on.calls(s.Previous)
		on.renew = func() {
			on.pool, on.proxy = secondProcess(sc, on.pool, on.proxy)
			on.request = on.calls(s.Call)
		}
		return on
	}
	u.run()
	if u.broken() == 0 {
		u.injectCrashes(u.repeated, resumes, func(s *subject) ask { return s.request })
	}
	if u.broken() == 0 && s.Previous != nil {
		u.injectCrashes(newCodeRepeatsNothing, newCodeResumes, func(s *subject) ask { return s.previous })
	}
}

// completedSQL counts the completed operations. Operations in progress do not count.
const completedSQL = `SELECT count(*) FROM idem.records WHERE state = 'completed'`

// secondProcess returns a second pool on the database of pool. The second pool connects through a
// new proxy, so that it stands for another process.
func secondProcess(t testing.TB, pool *pgxpool.Pool, proxy *faultproxy.Proxy) (*pgxpool.Pool, *faultproxy.Proxy) {
	t.Helper()
	twin, err := proxy.Twin()
	if err != nil {
		t.Fatalf("idemtest: start the proxy: %v", err)
	}
	t.Cleanup(twin.Close)
	config := pool.Config()
	config.ConnConfig.Port = twin.Port()
	next, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("idemtest: %v", err)
	}
	t.Cleanup(func() { closePool(t, next) })
	return next, twin
}

// crashes lists the two moments at which a process dies: before the server has received a
// statement, and after the server has executed the statement. In the second case, a COMMIT may have
// happened without the knowledge of the process.
var crashes = []struct {
	kind   faultproxy.Kind
	format string
}{
	{faultproxy.Freeze, "the process died before statement %d (%s)"},
	{faultproxy.FreezeAfter, "the process died after statement %d (%s)"},
}

// injectCrashes runs a trial for each statement of an operation: the first process dies at the
// statement, and another process resumes the operation with Call. The function in the parameter
// first returns the request of the first process. A repeated effect breaks the promise in the
// parameter repeats. A parked operation breaks the promise in the parameter parks.
func (u *suite) injectCrashes(repeats, parks promise, first func(s *subject) ask) {
	u.Helper()
	crashes := crashes
	if testing.Short() {
		crashes = crashes[:1]
	}
	for _, crash := range crashes {
		for n := range maxStatements {
			if fired, ok := u.injectCrash(crash.kind, crash.format, n, repeats, parks, first); !fired || !ok {
				break
			}
		}
	}
}

// injectCrash runs one trial of injectCrashes. fired is false if the operation had fewer than n+1
// statements. ok is false if a promise was broken.
//
// Freezing the proxy simulates the crash. For the server, every connection ends, as in a real
// crash. The goroutines of the "dead" process still exist, but no answer reaches them. Later the
// proxy thaws and these goroutines resume, like a process that was paused for a long time. They
// must not repeat an effect of the process that has resumed the operation in the meantime.
func (u *suite) injectCrash(kind faultproxy.Kind, format string, n int, repeats, parks promise, first func(s *subject) ask) (fired, ok bool) {
	u.Helper()
	u.trial(0, func(s *subject) {
		base := u.count(s)
		dying, proxy := first(s), s.proxy
		ctx, end := context.WithCancel(context.Background())
		defer end()
		dead, returned := make(chan struct{}), make(chan struct{})
		proxy.Arm(faultproxy.Fault{Kind: kind, At: n, Then: func() { close(dead) }})
		go func() {
			defer close(returned)
			u.call(ctx, dying)
		}()
		select {
		case <-dead:
			fired = true
		case <-returned:
			return
		}
		result := proxy.Disarm()
		s.renew()
		what := fmt.Sprintf(format, n+1, statementOf(result))
		// The answer is compared with the answer of an execution without faults only if the crash
		// rolled back no transaction and both processes run the same code.
		ok = u.checkResumed(s, what, base, repeats, parks, !result.Open && parks == resumes)
		end() // cancel the call of the first process, which resumes after Thaw
		proxy.Thaw()
		<-returned
		if now := u.count(s); ok && now.effects-base.effects > u.effects {
			ok = u.breaks(repeats, "%s; then the dead process resumed, and there were %d effects instead of %d", what, now.effects-base.effects, u.effects)
		}
	})
	return fired, ok
}

// checkResumed sends the request to the next process until the answer is final. It then checks the
// answer and the effects. If alike is true, the answer must equal the answer of an execution
// without faults. checkResumed returns false if a promise was broken.
func (u *suite) checkResumed(s *subject, what string, base counts, repeats, parks promise, alike bool) bool {
	u.Helper()
	last, ended := u.retry(s.request)
	what += "; the next process was answered " + last.brief
	parked := errors.Is(last.err, operation.ErrParked)
	effects := u.count(s).effects - base.effects
	switch {
	case effects > u.effects:
		return u.breaks(repeats, "%s: there were %d effects instead of %d", what, effects, u.effects)
	case parked && u.parks:
		return true
	case parked:
		return u.breaks(parks, "%s", what)
	case !ended:
		return u.breaks(keyFree, "%s, for %v", what, u.patience)
	case last.outcome == refused:
		return u.breaks(failureNotFinal, "%s", what)
	case effects < u.effects:
		return u.breaks(noEffectLost, "%s: there were %d effects instead of %d", what, effects, u.effects)
	case alike && !u.varies && last.text != u.first.text:
		return u.breaks(fromSteps, "%s; without a fault it is answered %s", what, u.first.brief)
	}
	duplicate, _ := u.retry(s.request)
	return u.checkReplay(what+"; then", last, duplicate)
}
