package operation_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/operation"
)

// pair is a primary and its synchronous standby. Clients connect to the one that takes writes.
type pair struct {
	primary, standby *pgserver.Server
	port             atomic.Int64
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{primary: ownServer(t)}
	var err error
	if p.standby, err = p.primary.Standby(t.Context(), "second", pgserver.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.standby.Close() })
	p.port.Store(int64(p.primary.Port()))
	s := shopOn(t, p.primary.DSN())
	for _, sql := range []string{`alter system set synchronous_standby_names = 'second'`, `select pg_reload_conf()`} {
		if _, err := s.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the standby to be synchronous", func() bool {
		return s.count(`select count(*) from pg_stat_replication where sync_state = 'sync'`) == 1
	})
	return p
}

// ownServer starts a server with the schema for one test.
func ownServer(t *testing.T, settings ...string) *pgserver.Server {
	t.Helper()
	server := pgtest.Server(t, settings...)
	if err := schema.UpAt(t.Context(), server.DSN()); err != nil {
		t.Fatal(err)
	}
	return server
}

// open returns a pool whose connections go to the primary.
func (p *pair) open(t *testing.T) *shop {
	t.Helper()
	return shopOn(t, p.primary.DSN(), func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dial(ctx, network, fmt.Sprint("127.0.0.1:", p.port.Load()))
		}
	})
}

// failOver kills the primary and promotes the standby.
func (p *pair) failOver(t *testing.T) {
	t.Helper()
	p.primary.Kill()
	if err := p.standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.port.Store(int64(p.standby.Port()))
}

// A failover ends the presence of every process. A living process comes back as a new instance, in a race with others that count it as
// dead. One of them resumes from the last commit, and there is one outcome.
func TestDo_OutlivesAFailover(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	s, other := p.open(t), p.open(t)
	other.bank = s.bank
	calls := map[string]*blocked{}
	answers := map[string]<-chan answer{}
	for _, key := range []string{"alone", "raced"} { // by a Worker of another process, or not
		b := newBlocked(s, operation.Keyed(time.Hour))
		calls[key] = b
		b.Definition = operation.Define(key, b.function(s))
		told := make(chan answer, 1)
		answers[key] = told
		go func() {
			res, err := b.Do(context.Background(), s.pool, scope, key, hashA, 0, idem.WithWait(limit), idem.WithRetries(20))
			told <- answer{res, err}
		}()
		await(t, "the call", b.begun)
	}
	failed := time.Now()
	p.failOver(t)
	promoted := time.Now()
	for _, b := range calls {
		close(b.release) // the bank answers, whatever happens to the database
	}
	rival := newBlocked(other, operation.Keyed(time.Hour))
	rival.Definition = operation.Define("raced", rival.function(other))
	close(rival.release)
	other.work(t, rival)
	for key, told := range answers {
		a := await(t, "the answer", told)
		for n := 0; a.err != nil && n < 20; n++ { // the call may have left it to the next process
			if !errors.Is(a.err, idem.ErrInProgress) && !idem.Retryable(a.err) {
				t.Fatal(key, a.err)
			}
			a.Result, a.err = calls[key].Do(t.Context(), s.pool, scope, key, hashA, 0, idem.WithWait(limit))
		}
		if a.err != nil || a.Status != 201 {
			t.Errorf("%s: %+v, %v", key, a.Result, a.err)
		}
	}
	t.Logf("promoted %v after the primary was killed, and done %v later", promoted.Sub(failed), time.Since(promoted))
	if got := s.text(`select string_agg(step || ' ' || n, ', ' order by step) from (select step, count(*) n from done group by 1) counted`); got != "after 2, before 2" {
		t.Errorf("committed: %s", got)
	}
	if n, asked := s.bank.keys(); n != 2 {
		t.Errorf("the bank was charged under %d keys in %d requests", n, asked)
	}
	if n := s.count(`select count(*) from idem.operations where state = 'completed'`); n != 2 {
		t.Errorf("%d operations have ended", n)
	}
}
