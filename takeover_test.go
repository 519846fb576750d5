package idem_test

import (
	"errors"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/pgproxy"
	"github.com/idem-go/idem/internal/pgtest"
)

// The record answers what became of a COMMIT as long as it is there. When it may have expired and been taken over while
// nobody could ask, a call does not claim to know: neither that nothing was committed, nor that it may be run again.
func TestCommitWhoseRecordWasTakenOverMeanwhileIsUnknown(t *testing.T) {
	t.Parallel()
	for name, ttl := range map[string]time.Duration{"the successor is retained": time.Hour, "the successor has expired as well": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			pool := pgtest.Open(t, p.proxy.DSN())
			trap := p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.BlackHole)
			done := make(chan error, 1)
			go func() {
				_, err := idem.Do(t.Context(), pool, scope, "k", hashA, p.charge("k"), idem.WithTTL(50*time.Millisecond))
				done <- err
			}()
			event := await(t, "the trap", trap.Fired())
			for {
				res, err := idem.Do(t.Context(), p.pool, scope, "k", hashA, p.charge("k"), idem.WithTTL(ttl))
				if err != nil {
					t.Fatal(err)
				}
				if !res.Replayed {
					break
				}
			}
			for ttl < time.Hour && p.count("select count(*) from idem.records where expires_at <= clock_timestamp()") == 0 {
			}
			event.Conn.Cut(pgproxy.Reset)
			if err := await(t, "the call", done); !errors.Is(err, idem.ErrOutcomeUnknown) {
				t.Errorf("err = %v", err)
			}
			if n := p.entries("k"); n != 2 {
				t.Errorf("%d effects", n)
			}
		})
	}
}
