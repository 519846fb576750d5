package idemtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
)

// alone runs one execution without faults, checks that it succeeds and has an effect and a record,
// and stores what the other trials compare with.
func (u *suite) alone() {
	u.Helper()
	u.stage(0, func(s *subject) {
		base := u.balance(s)
		u.first, _ = u.insist(s.request)
		broken, isBroken := brokenTx(s, u.first)
		b := u.balance(s)
		u.effects, u.records = b.effects-base.effects, b.behind-base.before
		switch {
		case isBroken:
			u.breaks(broken, "it was answered %s", u.first.brief)
		case u.first.fate != done:
			u.breaks(firstAnswer, "it was answered %s", u.first.brief)
		// The code answers before its effect is made, for example by a goroutine.
		case u.effects < 1 && u.comeLater(s, b):
			u.breaks(u.late(base, b), "the effect came when the answer, %s, was given", u.first.brief)
		case u.effects < 1:
			u.breaks(hasEffect, "Effects returned %d before and %d behind it; the answer was %s", base.effects, b.effects, u.first.brief)
		case b.behind == base.before:
			u.breaks(u.forgotten, "it had its effect, the answer was %s, and `%s` still returns %d", u.first.brief, s.memory, b.behind)
		}
	})
}

// lateness is how long comeLater waits for an effect that comes after the answer.
const lateness = 3 * time.Second

// comeLater reports whether the number of effects rises above that in than within lateness.
func (u *suite) comeLater(s *subject, than books) bool {
	u.Helper()
	for begin := time.Now(); time.Since(begin) < lateness; time.Sleep(50 * time.Millisecond) {
		if u.balance(s).effects > than.effects {
			return true
		}
	}
	return false
}

// inTurn sends duplicates one after another.
func (u *suite) inTurn() {
	u.Helper()
	u.stage(0, func(s *subject) {
		first, base, one, sound := u.undisturbed(s)
		if !sound {
			return
		}
		for _, way := range []struct {
			name string
			ask  ask
		}{{"the second time", s.request}, {"with what hops change: user agent, trace, address", s.echo}} {
			if way.ask == nil {
				continue
			}
			duplicate, _ := u.insist(way.ask)
			if !u.unchanged(way.name, base, one, u.balance(s)) || !u.repeats(way.name, first, duplicate) {
				return
			}
		}
	})
}

// payload sends another payload under the same key.
func (u *suite) payload() {
	u.Helper()
	u.stage(0, func(s *subject) {
		if s.other == nil {
			return
		}
		_, _, one, sound := u.undisturbed(s)
		if !sound {
			return
		}
		given := u.call(context.Background(), s.other)
		switch now := u.balance(s); {
		case now.effects != one.effects:
			u.breaks(payloadRefused, "it was answered %s, and there are %d effects more", given.brief, now.effects-one.effects)
		default:
			// The payload had no effect. Whether it was refused properly depends on the kind of
			// code.
			u.swallowed(u, s, given)
		}
	})
}

// principal sends the same key and payload as another principal.
func (u *suite) principal() {
	u.Helper()
	u.stage(0, func(s *subject) { u.servedApart(s, s.stranger, ownScope) })
}

// another sends other keys: next, or the sibling of request. The code may answer only after an
// effect or a record of the new key. Code that answers without either has treated the request as a
// duplicate.
func (u *suite) another() {
	u.Helper()
	u.stage(0, func(s *subject) {
		u.servedApart(s, s.next, u.taken)
		if s.sibling == nil {
			return
		}
		_, _, one, sound := u.undisturbed(s)
		given := u.call(context.Background(), s.sibling)
		if sound && given.fate == done && u.balance(s) == one {
			u.breaks(u.taken, "with its key changed it was answered %s, and there is neither an effect nor a record of it", given.brief)
		}
		if u.call(context.Background(), s.plain[0]).fate != done {
			return // the code accepts only UUIDs as keys
		}
		one = u.balance(s)
		if given = u.call(context.Background(), s.plain[1]); given.fate == done && u.balance(s) == one {
			u.breaks(u.taken, "behind the key %q the key %q was answered %s, and there is neither an effect nor a record of it", plainKeys[0], plainKeys[1], given.brief)
		}
	})
}

// servedApart sends what after the first request. It must succeed and have its own effect,
// otherwise broken is reported.
func (u *suite) servedApart(s *subject, what ask, broken promise) {
	u.Helper()
	if what == nil {
		return
	}
	_, _, one, sound := u.undisturbed(s)
	given, _ := u.insist(what)
	now := u.balance(s)
	more := now.effects - one.effects
	switch {
	case !sound, given.fate == done && more == u.effects:
		return
	// The key is not the problem: the effect came after the answer.
	case given.fate == done && more < u.effects && u.comeLater(s, now):
		broken = u.late(one, now)
	}
	u.breaks(broken, "it was answered %s, and there were %d effects more instead of %d", given.brief, more, u.effects)
}

// tick is more than a second: keys and hashes that contain a time usually cut it to seconds.
const tick = 1100 * time.Millisecond

// later sends a duplicate after a second, and another one after u.within. For the second one, later
// does not wait but moves the stored times into the past.
func (u *suite) later() {
	u.Helper()
	u.stage(0, func(s *subject) {
		first, base, one, sound := u.undisturbed(s)
		if !sound {
			return
		}
		if !testing.Short() {
			time.Sleep(tick)
		}
		duplicate, _ := u.insist(s.request)
		if !u.unchanged("a second later", base, one, u.balance(s)) || !u.repeats("a second later", first, duplicate) {
			return
		}
		execAll(u, s, age, u.within)
		execAll(u, s, purge)
		u.insist(s.request)
		if now := u.balance(s); now.effects != one.effects {
			u.breaks(remembered, "%v later there were %d effects instead of %d", u.within, now.effects-base.effects, u.effects)
		}
	})
}

// age moves the times of completed records into the past by $1, as if that time had passed.
var age = []string{
	`UPDATE idem.records SET created_at = created_at - $1::interval, completed_at = completed_at - $1::interval, expires_at = expires_at - $1::interval
		WHERE state IN ('completed', 'failed')`,
	`UPDATE idem.inbox SET since = since - $1::interval, expires_at = expires_at - $1::interval WHERE state = 'handled'`,
}

// purge deletes expired rows of the inbox, as package purge does.
var purge = []string{
	`DELETE FROM idem.inbox WHERE state = 'handled' AND expires_at <= now()`,
}

// execAll executes statements with args on the pool of s.
func execAll(u *suite, s *subject, statements []string, args ...any) {
	u.Helper()
	for _, sql := range statements {
		if _, err := s.pool.Exec(context.Background(), sql, args...); err != nil {
			u.Fatalf("idemtest: let time pass: %v", err)
		}
	}
}

const (
	// duplicates is the number of simultaneous requests.
	duplicates = 6
	// slowness delays every statement, so that the duplicates overlap in each of them.
	slowness = 4 * time.Millisecond
)

// together sends duplicates at the same time.
func (u *suite) together() {
	u.Helper()
	u.stage(0, func(s *subject) {
		base := u.balance(s)
		u.warm(s)
		s.proxy.Delay(slowness)
		given := make([]answer, duplicates)
		ended := make(chan struct{})
		for i := range given {
			go func() {
				defer func() { ended <- struct{}{} }()
				given[i], _ = u.insist(s.request)
			}()
		}
		for range given {
			<-ended
		}
		s.proxy.Delay(0)
		now := u.balance(s)
		switch n := now.effects - base.effects; {
		case n > u.effects:
			u.breaks(atOnce, "%d duplicates at once had %d effects instead of %d", duplicates, n, u.effects)
		case n < u.effects:
			u.breaks(u.late(base, now), "%d duplicates at once, all of which were answered, had %d effects instead of %d", duplicates, n, u.effects)
		}
		for _, a := range given {
			switch {
			case a.fate != done:
				u.breaks(atOnceAnswered, "one of %d duplicates at once was answered %s", duplicates, a.brief)
			case a.text != given[0].text:
				u.breaks(sameAnswer, "of %d duplicates at once, one was answered %s, another %s", duplicates, given[0].brief, a.brief)
			}
		}
	})
}

// besides sends the same key and payload as two principals at the same time. Each principal must
// get its own effect.
func (u *suite) besides() {
	u.Helper()
	u.stage(0, func(s *subject) {
		if s.stranger == nil {
			return
		}
		base := u.balance(s)
		u.warm(s)
		s.proxy.Delay(slowness)
		ended := make(chan answer)
		for i := range duplicates {
			ask := s.request
			if i%2 > 0 {
				ask = s.stranger
			}
			go func() {
				a := answer{fate: again, brief: "by the end of its goroutine"}
				defer func() { ended <- a }()
				a, _ = u.insist(ask)
			}()
		}
		served := true
		for range duplicates {
			a := <-ended
			served = served && a.fate == done
		}
		s.proxy.Delay(0)
		if n := u.balance(s).effects - base.effects; served && n < 2*u.effects {
			u.breaks(ownScope, "two principals who asked at the same time were both answered with success, and there were %d effects instead of %d", n, 2*u.effects)
		}
	})
}

// hurry is the deadline of a duplicate that arrives while the first request is in progress.
const hurry = 500 * time.Millisecond

// inProgress sends a duplicate while the COMMIT of the first request is held. The duplicate may
// wait, or may be told to retry. If it is answered with success before anything is committed, the
// answer comes from somewhere else than the database.
//
// The trial needs three connections: one for the first request, one for the duplicate, and one to
// count.
func (u *suite) inProgress() {
	u.Helper()
	commit := u.flightsToCommit()
	u.stage(0, func(s *subject) {
		if commit < 0 || s.pool.Config().MaxConns < 3 {
			return
		}
		base := u.balance(s)
		reached, held, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(held) })
		defer release()
		// The first request stops in Then just before its COMMIT, until release is called.
		s.proxy.Arm(faultproxy.Fault{Kind: faultproxy.Tell, At: commit, Then: func() { close(reached); <-held }})
		go func() {
			defer close(ended)
			u.insist(s.request)
		}()
		select {
		// The request has ended without reaching the COMMIT: nothing to test.
		case <-ended:
			return
		case <-reached:
		}
		ctx, cancel := context.WithTimeout(context.Background(), hurry)
		defer cancel()
		duplicate := make(chan answer, 1)
		go func() {
			a := answer{fate: again}
			defer func() { duplicate <- a }()
			a = u.call(ctx, s.request)
		}()
		given := answer{fate: again}
		select {
		case given = <-duplicate:
		// The code ignores its context and waits for the first request. The deferred function lets
		// both finish before the trial ends.
		case <-time.After(2 * hurry):
			defer func() { release(); <-duplicate }()
		}
		now := u.balance(s)
		release()
		<-ended
		if given.fate == done && now.behind == base.before {
			u.breaks(u.early, "while the first was still in progress, a duplicate was answered %s, and nothing was committed", given.brief)
		}
	})
}

// flightsToCommit returns the number of flights of an undisturbed request before its first COMMIT,
// or -1 if there is no COMMIT. It runs a trial on the first call and caches the result in
// u.toCommit. A fault with an unreachable position makes the proxy count flights and nothing else.
func (u *suite) flightsToCommit() int {
	u.Helper()
	if u.toCommit == 0 {
		u.stage(0, func(s *subject) {
			s.proxy.Arm(faultproxy.Fault{Kind: faultproxy.Tell, At: 1 << 30})
			u.insist(s.request)
			u.toCommit = s.proxy.ToCommit() + 1
		})
	}
	return u.toCommit - 1
}

// warm opens the connections that simultaneous duplicates need. Without it, the first duplicate
// would finish while the others still connect.
func (u *suite) warm(s *subject) {
	ctx, cancel := context.WithTimeout(context.Background(), u.patience)
	defer cancel()
	free := s.pool.Config().MaxConns - s.pool.Stat().AcquiredConns()
	for range min(duplicates, free) {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return
		}
		// Keep all of them until warm returns, so that each Acquire opens another connection.
		defer conn.Release()
	}
}

// oneByOne runs a request on a pool of one connection. Code that acquires a second connection while
// it holds the first would wait forever. A second connection per request deadlocks a larger
// pool too, under enough load.
func (u *suite) oneByOne() {
	u.Helper()
	u.stage(1, func(s *subject) {
		if s.pool.Stat().AcquiredConns() > 0 || s.pool.Config().MaxConns != 1 {
			return // a goroutine of the code holds a connection, or New ignores the pool size
		}
		quiet := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		starved := false
		go func() {
			defer close(quiet)
			starved = watch(ctx, s, u.patience)
			cancel()
		}()
		a := u.call(ctx, s.request)
		cancel()
		<-quiet
		if starved {
			u.breaks(oneConnection, "with a pool of one connection nothing was sent for %v while that connection was in use; then the answer was %s", quietLimit(u.patience), a.brief)
		}
	})
}

// quietLimit is how long the only connection may be in use without a statement.
func quietLimit(patience time.Duration) time.Duration { return patience / 3 }

// watch returns true once the only connection has been in use for quietLimit without a statement.
// It returns false when ctx ends.
func watch(ctx context.Context, s *subject, patience time.Duration) bool {
	sent, since := -1, time.Now()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
		if n := s.proxy.Flights(); n != sent || s.pool.Stat().AcquiredConns() == 0 {
			sent, since = n, time.Now()
		}
		if time.Since(since) > quietLimit(patience) {
			return true
		}
	}
}
