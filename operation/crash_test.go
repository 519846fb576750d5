package operation_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/pgproxy"
	"github.com/idem-go/idem/internal/pgtest"
)

// recorder remembers the statements of one run, as places where a later one is broken.
type recorder struct {
	mu  sync.Mutex
	sql []string
}

func (r *recorder) watch(e pgproxy.Event) {
	if e.Stage == pgproxy.Seen {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sql = append(r.sql, e.SQL)
	}
}

// nth matches the n-th statement, from 0.
func nth(n int) pgproxy.Match {
	var mu sync.Mutex
	count := -1
	return func(pgproxy.Statement) bool {
		mu.Lock()
		defer mu.Unlock()
		count++
		return count == n
	}
}

// Wherever the connection of an operation breaks, its steps are done once and its call is made under one key: by the call
// itself if it can go on, and otherwise by the next one with that key.
func TestConnectionCutAtAnyStatementLeavesOneOutcome(t *testing.T) {
	t.Parallel()
	dry := newShop(t)
	proxy := pgtest.Proxy(t, dry.dsn)
	var r recorder
	stop := proxy.Observe(r.watch)
	behind := dry.through(proxy, maxConns(2))
	if _, err := behind.checkout().Do(t.Context(), behind.pool, scope, "k", hashA, "book"); err != nil {
		t.Fatal(err)
	}
	stop()
	t.Logf("%d statements", len(r.sql))
	for _, place := range []struct {
		name string
		at   func(pgproxy.Match) pgproxy.Point
	}{
		{"before", pgproxy.Before},
		{"after its answer", func(m pgproxy.Match) pgproxy.Point { return pgproxy.AfterAnswer(m) }},
	} {
		for n := range r.sql {
			t.Run(fmt.Sprintf("%s statement %d", place.name, n), func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				proxy := pgtest.Proxy(t, s.dsn)
				behind := s.through(proxy, maxConns(2))
				proxy.Arm(place.at(nth(n)), pgproxy.Reset)
				res, err := behind.checkout().Do(t.Context(), behind.pool, scope, "k", hashA, "book")
				if err != nil {
					t.Logf("the call that was cut: %v", err)
				}
				again, err := s.insist(t.Context(), "k", "book")
				if err != nil {
					t.Fatal(err)
				}
				if res.Status != 0 && string(res.Body) != string(again.Body) {
					t.Errorf("first %s, then %s", res.Body, again.Body)
				}
				s.wantOnce("book")
			})
		}
	}
}

// insist calls with the key until there is an answer, as a client does.
func (s *shop) insist(ctx context.Context, key, in string) (idem.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		res, err := s.checkout().Do(ctx, s.pool, scope, key, hashA, in)
		if err == nil || ctx.Err() != nil {
			return res, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
