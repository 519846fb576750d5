package idemtest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
)

// firstRun runs one execution without faults, and checks that it succeeds and has an effect and a
// record. It stores the answer and the numbers of effects and records, so that later trials can
// compare theirs.
func (u *suite) firstRun() {
	u.Helper()
	u.trial(0, func(s *subject) {
		base := u.count(s)
		u.first, _ = u.retry(s.request)
		broken, isBroken := brokenTx(s, u.first)
		b := u.count(s)
		u.effects, u.records = b.effects-base.effects, b.after-base.before
		switch {
		case isBroken:
			u.breaks(broken, "it was answered %s", u.first.brief)
		case u.first.outcome != done:
			u.breaks(firstAnswer, "it was answered %s", u.first.brief)
		// In this case the code answered before its effect, for example because a goroutine makes
		// the effect.
		case u.effects < 1 && u.effectsFollow(s, b):
			u.breaks(u.missingEffect(base, b), "it was answered %s, and its effect came later", u.first.brief)
		case u.effects < 1:
			u.breaks(hasEffect, "Effects returned %d before and %d after it; it was answered %s", base.effects, b.effects, u.first.brief)
		case b.after == base.before:
			u.breaks(u.unrecorded, "it had its effect and was answered %s, but `%s` still returns %d", u.first.brief, s.countSQL, b.after)
		}
	})
}

// lateWait is how long effectsFollow waits for an effect that comes after the answer.
const lateWait = 3 * time.Second

// effectsFollow reports whether a new effect, compared with than, appears within lateWait.
func (u *suite) effectsFollow(s *subject, than counts) bool {
	u.Helper()
	for begin := time.Now(); time.Since(begin) < lateWait; time.Sleep(50 * time.Millisecond) {
		if u.count(s).effects > than.effects {
			return true
		}
	}
	return false
}

// oneAfterAnother sends duplicates one after another and checks that they have no effect and get
// the first answer.
func (u *suite) oneAfterAnother() {
	u.Helper()
	u.trial(0, func(s *subject) {
		first, base, one, ok := u.undisturbed(s)
		if !ok {
			return
		}
		for _, way := range []struct {
			name string
			ask  ask
		}{{"the second time", s.request}, {"with other values in the header fields that proxies change (user agent, trace, address)", s.resent}} {
			if way.ask == nil {
				continue
			}
			duplicate, _ := u.retry(way.ask)
			if !u.checkUnchanged(way.name, base, one, u.count(s)) || !u.checkReplay(way.name, first, duplicate) {
				return
			}
		}
	})
}

// otherPayload sends another payload under the same key and checks that the code refuses it.
func (u *suite) otherPayload() {
	u.Helper()
	u.trial(0, func(s *subject) {
		if s.other == nil {
			return
		}
		_, _, one, ok := u.undisturbed(s)
		if !ok {
			return
		}
		given := u.call(context.Background(), s.other)
		switch now := u.count(s); {
		case now.effects != one.effects:
			u.breaks(payloadRefused, "it was answered %s, and there are %d more effects", given.brief, now.effects-one.effects)
		default:
			// The other payload had no effect. What counts as a proper refusal depends on the kind
			// of code, so checkOther decides.
			u.checkOther(u, s, given)
		}
	})
}

// otherPrincipal sends the same key and payload as another principal, who must get an effect of its
// own.
func (u *suite) otherPrincipal() {
	u.Helper()
	u.trial(0, func(s *subject) { u.servedApart(s, s.stranger, ownScope) })
}

// otherKeys sends the request next, or request with one character of its key changed. Code that
// uses only a part or a hash of the key confuses the changed key with the first key. If the code
// answers with success, there must be a new effect or a new record. Without either, the code has
// treated the request as a duplicate.
func (u *suite) otherKeys() {
	u.Helper()
	u.trial(0, func(s *subject) {
		u.servedApart(s, s.next, u.taken)
		if s.similarKey == nil {
			return
		}
		_, _, one, ok := u.undisturbed(s)
		given := u.call(context.Background(), s.similarKey)
		if ok && given.outcome == done && u.count(s) == one {
			u.breaks(u.taken, "with one character of its key changed it was answered %s, and it has neither an effect nor a record", given.brief)
		}
		if u.call(context.Background(), s.plain[0]).outcome != done {
			return // the code accepts only UUIDs as keys
		}
		one = u.count(s)
		if given = u.call(context.Background(), s.plain[1]); given.outcome == done && u.count(s) == one {
			u.breaks(u.taken, "after a request with the key %q, one with the key %q was answered %s, and it has neither an effect nor a record",
				plainKeys[0], plainKeys[1], given.brief)
		}
	})
}

// servedApart sends the first request, and then the request in the parameter what. This request
// must succeed and have its own effect. If not, servedApart reports the promise in broken.
func (u *suite) servedApart(s *subject, what ask, broken promise) {
	u.Helper()
	if what == nil {
		return
	}
	_, _, one, ok := u.undisturbed(s)
	given, _ := u.retry(what)
	now := u.count(s)
	more := now.effects - one.effects
	switch {
	case !ok, given.outcome == done && more == u.effects:
		return
	// In this case the key was treated correctly, but the effect came after the answer. That breaks
	// another promise.
	case given.outcome == done && more < u.effects && u.effectsFollow(s, now):
		broken = u.missingEffect(one, now)
	}
	u.breaks(broken, "it was answered %s, and had %d effects instead of %d", given.brief, more, u.effects)
}

// tick is longer than a second, because keys and hashes that wrongly contain the time often contain
// it in whole seconds.
const tick = 1100 * time.Millisecond

// afterTime sends a duplicate after a second, and another duplicate after u.within. Before the last
// duplicate, afterTime does not wait but moves the stored times into the past.
func (u *suite) afterTime() {
	u.Helper()
	u.trial(0, func(s *subject) {
		first, base, one, ok := u.undisturbed(s)
		if !ok {
			return
		}
		if !testing.Short() {
			time.Sleep(tick)
		}
		duplicate, _ := u.retry(s.request)
		if !u.checkUnchanged("a second later", base, one, u.count(s)) || !u.checkReplay("a second later", first, duplicate) {
			return
		}
		execAll(u, s, age, u.within)
		execAll(u, s, purge)
		u.retry(s.request)
		if now := u.count(s); now.effects != one.effects {
			u.breaks(remembered, "%v later there were %d effects instead of %d", u.within, now.effects-base.effects, u.effects)
		}
	})
}

// age moves the times of completed records into the past by $1, as if they were older by that much.
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
			u.Fatalf("idemtest: move the stored times: %v", err)
		}
	}
}

const (
	// duplicates is the number of requests that together sends at the same time.
	duplicates = 6
	// statementDelay is the delay that the proxy adds to every statement, so that simultaneous
	// duplicates overlap at each statement.
	statementDelay = 4 * time.Millisecond
)

// together sends simultaneous requests, taking the functions in asks in turn. It retries each
// request until its answer is final. It returns the answers, and the counts before and after.
func (u *suite) together(s *subject, asks ...ask) (given []answer, base, now counts) {
	u.Helper()
	base = u.count(s)
	u.warm(s)
	s.proxy.Delay(statementDelay)
	ended := make(chan answer)
	for i := range duplicates {
		go func() {
			a := answer{outcome: again, brief: "by the end of its goroutine"}
			defer func() { ended <- a }()
			a, _ = u.retry(asks[i%len(asks)])
		}()
	}
	for range duplicates {
		given = append(given, <-ended)
	}
	s.proxy.Delay(0)
	return given, base, u.count(s)
}

// simultaneous sends duplicates at the same time. Together they must have one effect, and all must
// get the same answer.
func (u *suite) simultaneous() {
	u.Helper()
	u.trial(0, func(s *subject) {
		given, base, now := u.together(s, s.request)
		switch n := now.effects - base.effects; {
		case n > u.effects:
			u.breaks(atOnce, "%d simultaneous duplicates had %d effects instead of %d", duplicates, n, u.effects)
		case n < u.effects:
			u.breaks(u.missingEffect(base, now), "%d simultaneous duplicates, all of which were answered, had %d effects instead of %d",
				duplicates, n, u.effects)
		}
		for _, a := range given {
			switch {
			case a.outcome != done:
				u.breaks(atOnceAnswered, "one of %d simultaneous duplicates was answered %s", duplicates, a.brief)
			case a.text != given[0].text:
				u.breaks(sameAnswer, "of %d simultaneous duplicates, one was answered %s, another %s", duplicates, given[0].brief, a.brief)
			}
		}
	})
}

// twoPrincipals sends the same key and payload as two principals at the same time. Each principal
// must get its own effect. Code may keep principals apart in its records and still confuse them in
// a lock or a cache of the process. Only simultaneous requests reveal that.
func (u *suite) twoPrincipals() {
	u.Helper()
	u.trial(0, func(s *subject) {
		if s.stranger == nil {
			return
		}
		given, base, now := u.together(s, s.request, s.stranger)
		failed := slices.ContainsFunc(given, func(a answer) bool { return a.outcome != done })
		if n := now.effects - base.effects; !failed && n < 2*u.effects {
			u.breaks(ownScope, "two principals with simultaneous requests were both answered with success, and there were %d effects instead of %d",
				n, 2*u.effects)
		}
	})
}

// duplicateTimeout is the deadline of a duplicate that arrives while the first request is in
// progress.
const duplicateTimeout = 500 * time.Millisecond

// inProgress sends a duplicate while the proxy delays the COMMIT of the first request. The
// duplicate may wait, or the code may refuse it for now. If the code answers with success before
// anything is committed, the answer comes from a cache or the like and not from the database.
//
// The trial needs three connections: one for the first request, one for the duplicate, and one to
// count.
func (u *suite) inProgress() {
	u.Helper()
	commit := u.flightsToCommit()
	u.trial(0, func(s *subject) {
		if commit < 0 || s.pool.Config().MaxConns < 3 {
			return
		}
		base := u.count(s)
		reached, held, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(held) })
		defer release()
		// The proxy calls Then just before the COMMIT of the first request. The COMMIT waits there
		// until release is called.
		s.proxy.Arm(faultproxy.Fault{Kind: faultproxy.Notify, At: commit, Then: func() { close(reached); <-held }})
		go func() {
			defer close(ended)
			u.retry(s.request)
		}()
		select {
		// The first request ended without reaching the COMMIT, so there is nothing to test.
		case <-ended:
			return
		case <-reached:
		}
		ctx, cancel := context.WithTimeout(context.Background(), duplicateTimeout)
		defer cancel()
		duplicate := make(chan answer, 1)
		go func() {
			a := answer{outcome: again}
			defer func() { duplicate <- a }()
			a = u.call(ctx, s.request)
		}()
		given := answer{outcome: again}
		select {
		case given = <-duplicate:
		// The duplicate ignores the end of its context and waits for the first request. The
		// deferred function lets both requests finish before the trial ends.
		case <-time.After(2 * duplicateTimeout):
			defer func() { release(); <-duplicate }()
		}
		now := u.count(s)
		release()
		<-ended
		if given.outcome == done && now.after == base.before {
			u.breaks(u.early, "while the first was still in progress, a duplicate was answered %s, and nothing was committed", given.brief)
		}
	})
}

// flightsToCommit returns the number of flights (round trips) of a request before its first COMMIT,
// or -1 if there is no COMMIT. The first call runs a trial and caches the result in u.toCommit. The
// trial arms a fault at a position that no request reaches, only to make the proxy count flights.
func (u *suite) flightsToCommit() int {
	u.Helper()
	if u.toCommit == 0 {
		u.trial(0, func(s *subject) {
			s.proxy.Arm(faultproxy.Fault{Kind: faultproxy.Notify, At: 1 << 30})
			u.retry(s.request)
			u.toCommit = s.proxy.ToCommit() + 1
		})
	}
	return u.toCommit - 1
}

// warm opens the connections that simultaneous duplicates need. Otherwise the first duplicate would
// finish while the others still connect.
func (u *suite) warm(s *subject) {
	ctx, cancel := context.WithTimeout(context.Background(), u.patience)
	defer cancel()
	free := s.pool.Config().MaxConns - s.pool.Stat().AcquiredConns()
	for range min(duplicates, free) {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return
		}
		// Keep each connection until warm returns, so that the next Acquire opens another one.
		defer conn.Release()
	}
}

// onOneConnection runs a request on a pool of one connection. Code that acquires a second
// connection before it releases the first would wait forever. Under enough load, such code also
// deadlocks a larger pool.
func (u *suite) onOneConnection() {
	u.Helper()
	u.trial(1, func(s *subject) {
		if s.pool.Stat().AcquiredConns() > 0 || s.pool.Config().MaxConns != 1 {
			return // a goroutine of the code has acquired a connection, or New ignores the pool size
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
			u.breaks(oneConnection, "with a pool of one connection nothing was sent for %v while that connection was in use; then it was answered %s",
				idleLimit(u.patience), a.brief)
		}
	})
}

// idleLimit is how long the code may keep the only connection of its pool acquired without sending
// a statement.
func idleLimit(patience time.Duration) time.Duration { return patience / 3 }

// watch returns true once the only connection has been in use for idleLimit without a statement.
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
		if time.Since(since) > idleLimit(patience) {
			return true
		}
	}
}
