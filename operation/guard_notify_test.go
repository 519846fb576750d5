package operation_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// More operations without a definition are due than a guard reads. The guard notices a dead process all the same.
func TestGuard_NoticesADeadProcessBehindABacklog(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	s.sleepers(t, 10_001)
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp() - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	d := pointed(s.pool, func(string) {})
	s.workRarely(t, d)
	eventually(t, "a guard", func() bool { return s.count(guards) == 1 })
	v := newVictim(t, s, "charged", "book")
	v.kill()
	eventually(t, "the operation to end", s.completed(1))
	s.wantBooks("book")
}

// A guard dies when it is about to tell the others what is due: the other guard tells them.
func TestGuard_OtherGuardNotifiesAfterADeath(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	known := operation.Define("known", func(op *operation.Op, _ string) (idem.Response, error) { return created, localStep(op, "book") })
	var proxies [2]*pgproxy.Proxy
	for i := range proxies {
		proxies[i] = pgtest.Proxy(t, s.dsn)
		s.through(proxies[i]).workRarely(t, s.checkout())
	}
	eventually(t, "two guards", func() bool { return s.count(guards) == 2 })
	s.aside().workRarely(t, known)
	eventually(t, "all processes", func() bool { return s.count(presences) == 3 })
	var dying sync.Once
	for _, proxy := range proxies {
		trap := proxy.Arm(pgproxy.Before(pgproxy.Contains("-- name: Tell ")), pgproxy.Reset)
		go func() {
			select {
			case <-trap.Fired():
			case <-t.Context().Done():
				return
			}
			dying.Do(func() { // of the other one this connection alone is lost, if it comes to that
				proxy.Refuse(pgproxy.Reset)
				proxy.Cut(pgproxy.Reset)
			})
		}()
	}
	time.Sleep(time.Second) // its own first look is over: a slower one makes the test say less, and never fail
	s.startSome(t, known, 1)
	eventually(t, "the operation to end", s.completed(1))
}

// Operations of more definitions are due than there is room for in what a guard may tell: a process that has one of them hears of it.
func TestGuard_NotifiesOfMoreNamesThanFit(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	known := operation.Define("known", func(op *operation.Op, _ string) (idem.Response, error) { return created, localStep(op, "book") })
	for range 2 {
		s.aside().workRarely(t, s.checkout())
	}
	eventually(t, "two guards", func() bool { return s.count(guards) == 2 })
	s.aside().workRarely(t, known)
	eventually(t, "all processes", func() bool { return s.count(presences) == 3 })
	time.Sleep(time.Second) // its own first look is over: a slower one makes the test say less, and never fail
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		for i := range 100 {
			d := operation.Define(fmt.Sprint("definition ", i, " ", strings.Repeat("ü", 40)), func(*operation.Op, string) (idem.Response, error) { return created, nil })
			if _, err := d.Start(t.Context(), tx, scope, fmt.Sprint("k", i), hashA, ""); err != nil {
				return err
			}
		}
		_, err := known.Start(t.Context(), tx, scope, "known", hashA, "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the operation to end", s.completed(1))
}
