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

// OperationSuite says how an operation of package operation is tried. Call and Effects are required.
type OperationSuite struct {
	// New makes a database with Pool and what the operation needs in there. It is called for every trial anew; t ends with the
	// trial. The default is Pool alone.
	New func(t testing.TB) *pgxpool.Pool

	// Call calls Do of the operation, with a payload with which it succeeds: always the same, key included.
	Call Call

	// Other, Stranger and Next are those of FuncSuite.
	Other, Stranger, Next Call

	// Previous is Call by the code of the last release. The operations that it has begun, and that a crash has left at any of
	// their steps, are gone on with by Call. Without it that is not tried.
	Previous Call

	// Parks says that the operation makes a call that is operation.Once, so that a crash may park it.
	Parks bool

	// Effects counts the effects that there are by now: rows, and calls of the fakes of other systems, which are to know their
	// keys again as those do.
	Effects func(ctx context.Context, pool *pgxpool.Pool) (int, error)

	// Patience and Within are those of HandlerSuite.
	Patience, Within time.Duration
}

// Operation holds an operation to what package operation promises: what Func does, and crashes at each statement, of which it makes
// one attempt as the process that dies, and the next as the process that comes after it.
func Operation(t testing.TB, s OperationSuite) {
	t.Helper()
	if s.Call == nil || s.Effects == nil {
		t.Fatal("idemtest: Call and Effects are required")
	}
	u := newSuite(t, s.Patience, s.Within)
	u.steps, u.repeated, u.parks = true, oncePerStep, s.Parks
	u.open = func(sc *scene) *subject {
		on := u.poolFor(sc, s.New, s.Effects)
		on.memory = completedSQL
		on.request, on.other, on.stranger, on.next = on.calls(s.Call), on.calls(s.Other), on.calls(s.Stranger), on.calls(s.Next)
		on.previous = on.calls(s.Previous)
		on.renew = func() {
			on.pool, on.proxy = another(sc, on.pool, on.proxy)
			on.request = on.calls(s.Call)
		}
		return on
	}
	u.run()
	if u.broken() == 0 {
		u.underCrashes(u.repeated, goesOn, func(s *subject) ask { return s.request })
	}
	if u.broken() == 0 && s.Previous != nil {
		u.underCrashes(oldOnce, oldGoesOn, func(s *subject) ask { return s.previous })
	}
}

// completedSQL counts what has ended, and not what is under way.
const completedSQL = `SELECT count(*) FROM idem.records WHERE state = 'completed'`

// another is a pool on the same database, as another process has one.
func another(t testing.TB, pool *pgxpool.Pool, proxy *faultproxy.Proxy) (*pgxpool.Pool, *faultproxy.Proxy) {
	t.Helper()
	twin, err := proxy.Twin()
	if err != nil {
		t.Fatalf("idemtest: the proxy: %v", err)
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

var crashes = []struct {
	kind faultproxy.Kind
	says string
}{
	{faultproxy.Freeze, "the process died before statement %d (%s)"},
	{faultproxy.FreezeBehind, "the process died behind statement %d (%s)"},
}

// underCrashes has a process die at each statement of an operation that it begins, and the next one go on with it.
func (u *suite) underCrashes(repeats, parks promise, first func(s *subject) ask) {
	u.Helper()
	crashes := crashes
	if testing.Short() {
		crashes = crashes[:1]
	}
	for _, crash := range crashes {
		for n := range mostPoints {
			if fired, sound := u.underCrash(crash.kind, crash.says, n, repeats, parks, first); !fired || !sound {
				break
			}
		}
	}
}

func (u *suite) underCrash(kind faultproxy.Kind, says string, n int, repeats, parks promise, first func(s *subject) ask) (fired, sound bool) {
	u.Helper()
	u.stage(0, func(s *subject) {
		base := u.balance(s)
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
		shot := proxy.Disarm()
		s.renew()
		what := fmt.Sprintf(says, n+1, brief(shot))
		sound = u.goesOn(s, what, base, repeats, parks, !shot.Open && parks == goesOn)
		end() // what was dead is back, and finds that another has gone on
		proxy.Thaw()
		<-returned
		if now := u.balance(s); sound && now.effects-base.effects > u.effects {
			sound = u.breaks(repeats, "%s; then it came back to life, and there were %d effects instead of %d", what, now.effects-base.effects, u.effects)
		}
	})
	return fired, sound
}

// goesOn holds what the next process makes of an operation against the promises.
func (u *suite) goesOn(s *subject, what string, base books, repeats, parks promise, alike bool) bool {
	u.Helper()
	last, ended := u.insist(s.request)
	what += "; the next one was answered " + last.brief
	parked := errors.Is(last.err, operation.ErrParked)
	effects := u.balance(s).effects - base.effects
	switch {
	case effects > u.effects:
		return u.breaks(repeats, "%s: there were %d effects instead of %d", what, effects, u.effects)
	case parked && u.parks:
		return true
	case parked:
		return u.breaks(parks, "%s", what)
	case !ended:
		return u.breaks(keyFree, "%s, for %v", what, u.patience)
	case last.fate == refused:
		return u.breaks(failureNotFinal, "%s", what)
	case effects < u.effects:
		return u.breaks(noEffectLost, "%s: there were %d effects instead of %d", what, effects, u.effects)
	case alike && !u.varies && last.text != u.first.text:
		return u.breaks(fromSteps, "%s; with nothing in its way it is answered %s", what, u.first.brief)
	}
	duplicate, _ := u.insist(s.request)
	return u.repeats(what+"; then", last, duplicate)
}
