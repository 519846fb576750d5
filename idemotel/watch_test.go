package idemotel_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemotel"
	"github.com/idem-go/idem/lab/pgtest"
)

// limit is the maximum time that a test waits for an event.
const limit = 2 * time.Minute

func (s *seen) watch(pool *pgxpool.Pool, opts ...idemotel.Option) *idemotel.Gauges {
	s.t.Helper()
	g, err := idemotel.Watch(pool, append(s.options(), opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { g.Stop() })
	return g
}

// await collects metrics until a time series exists, and returns all of them.
func (s *seen) await(name string) map[string]float64 {
	s.t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		values := s.values()
		if _, ok := values[name]; ok {
			return values
		}
	}
	s.t.Fatalf("%s was never shown", name)
	return nil
}

func execSQL(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql); err != nil {
		t.Fatal(err)
	}
}

func TestWatch_ShowsTheDatabaseAndThePool(t *testing.T) {
	t.Parallel()
	s, pool := newSeen(t), pgtest.New(t, func(c *pgxpool.Config) { c.MaxConns = 7 })
	execSQL(t, pool, `alter table idem.records set (autovacuum_enabled = off)`)
	execSQL(t, pool, `insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		select 's', 'k' || i, '\x00', gen_random_uuid(), now(), now() + i * interval '1 minute', 'completed' from generate_series(-249, 750) i`)
	execSQL(t, pool, "analyze idem.records")
	execSQL(t, pool, `insert into idem.sweeps (name, last_started_at, last_finished_at, last_deleted, deleted_total, waiting_for)
		values ('records', now() - interval '2 hours', now() - interval '1 hour', 7200, 9000, 'vacuum')`)
	execSQL(t, pool, `insert into idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, state, undoing, step, seq, since, wake_at, tries, attempts)
		select gen_random_uuid(), 's', 'k' || i, '', 'n', 1, now(), 1, case when i <= 2 then 'parked' when i <= 5 then 'running' else 'completed' end, false, 's', 1,
			now() - i * interval '100 s', now() - i * interval '10 s', 0, 0 from generate_series(1, 9) i`)
	execSQL(t, pool, `insert into idem.outbox (created_at, id, held, aggregatetype, aggregateid, type)
		select now() - i * interval '100 s', gen_random_uuid(), i <= 2, 't', '', '' from generate_series(5, 1, -1) i`)
	execSQL(t, pool, `insert into idem.sweeps (name, last_started_at) values ('inbox', now() - interval '1 h')`)
	execSQL(t, pool, `insert into idem.sweeps (name, started_at) values ('published', now() - interval '30 min')`)
	execSQL(t, pool, `insert into idem.delayed (not_before, created_at, id, aggregatetype, aggregateid, type)
		select now() + i * interval '1 day', now() - interval '1 day', gen_random_uuid(), 't', '', '' from generate_series(1, 4) i`)
	execSQL(t, pool, `insert into idem.dead_letters (side, consumer, source, id, key, type, class, reason, attempts, created_at, died_at)
		select case when i <= 3 then 'outbox' else 'inbox' end, '', 's', i::text, '', '', '', '', 1, now(), now() from generate_series(1, 7) i`)
	execSQL(t, pool, `insert into idem.audit (at, id, act, outcome, role, person, reason, step, scope, key, side, consumer, source, message_id)
		select now() - i * interval '10 h', gen_random_uuid(), 'cancel', '', '', '', '', '', '', '', '', '', '', '' from generate_series(1, 3) i`)
	execSQL(t, pool, `insert into idem.inbox (consumer, source, id, hash, state, since, expires_at)
		values ('c', 's', '1', '', 'failing', now() - interval '200 s', now())`)
	s.watch(pool, idemotel.WithPoolName("orders"))
	_, err := idem.Do(t.Context(), pool, "s", "held", hashA, func(pgx.Tx) (idem.Response, error) {
		values := s.await("idem.keys.held")
		for name, want := range map[string][2]float64{
			"idem.records idem.record.state=live":                  {700, 800},
			"idem.records idem.record.state=expired":               {200, 300},
			"idem.records.expired.age":                             {240 * 60, 260 * 60},
			"idem.rows.dead idem.table=records":                    {0, 10},
			"idem.rows.live idem.table=records":                    {900, 1100},
			"idem.rows.live idem.table=operations":                 {0, 9},
			"idem.rows.dead idem.table=steps":                      {0, 0},
			"idem.storage.size idem.part=heap idem.table=records":  {50e3, 1e6},
			"idem.storage.size idem.part=index idem.table=records": {10e3, 1e6},
			"idem.storage.size idem.part=other idem.table=records": {0, 1e6},
			"idem.storage.size idem.part=heap idem.table=outbox":   {8192, 1e6},
			"idem.storage.size idem.part=index idem.table=signals": {8192, 1e6},
			"idem.transactions":                                    {1, 1},
			"idem.transactions.age":                                {0, 60},
			"idem.keys.held":                                       {1, 1},
			"idem.operations idem.operation.state=running":         {3, 3},
			"idem.operations idem.operation.state=parked":          {2, 2},
			"idem.operations.parked.age":                           {200, 260},
			"idem.operations.late":                                 {50, 110},
			"idem.outbox.waiting":                                  {3, 3},
			"idem.outbox.delayed":                                  {4, 4},
			"idem.outbox.held":                                     {2, 2},
			"idem.outbox.oldest.age":                               {500, 560},
			"idem.dead_letters idem.side=outbox":                   {3, 3},
			"idem.dead_letters idem.side=inbox":                    {4, 4},
			"idem.acts idem.act=cancel":                            {2, 2},
			"idem.acts idem.act=evict":                             {0, 0},
			"idem.inbox.failing.age":                               {200, 260},
			"idem.purge.lag idem.table=records":                    {7190, 7260},
			"idem.purge.lag idem.table=inbox":                      {3590, 3660},
			"idem.purge.lag idem.table=published":                  {1790, 1860},
			"idem.purge.speed":                                     {1.99, 2.01},
			"idem.purge.deleted idem.table=records":                {9000, 9000},
			"idem.purge.waiting idem.purge.reason=vacuum":          {1, 1},
			"idem.purge.waiting idem.purge.reason=lock":            {0, 0},
			"db.client.connection.count db.client.connection.pool.name=orders db.client.connection.state=used": {1, 2},
			"db.client.connection.max db.client.connection.pool.name=orders":                                   {7, 7},
			"db.client.connection.timeouts db.client.connection.pool.name=orders":                              {0, 0},
		} {
			if got, shown := values[name]; !shown || got < want[0] || got > want[1] {
				t.Errorf("%s is %v (shown: %t), want %v to %v", name, got, shown, want[0], want[1])
			}
		}
		return ok, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatch_OmitsFiguresWithoutPrivilege(t *testing.T) {
	t.Parallel()
	s := newSeen(t)
	pool := pgtest.New(t, func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set role pg_signal_backend")
			return err
		}
	})
	owner := pgtest.Open(t, pool.Config().ConnString())
	execSQL(t, owner, `insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		values ('s', 'k', '\x00', gen_random_uuid(), now(), now(), 'completed')`)
	execSQL(t, owner, "analyze idem.records")
	s.watch(pool)
	values := s.await("idem.records idem.record.state=unknown")
	for name := range values {
		if strings.HasPrefix(name, "idem.purge") || strings.HasPrefix(name, "idem.operations") || strings.HasPrefix(name, "idem.outbox") || strings.HasPrefix(name, "idem.dead") || strings.Contains(name, "expired") {
			t.Errorf("%s is shown", name)
		}
	}
}

func TestWatch_ShowsAnExhaustedPool(t *testing.T) {
	t.Parallel()
	s, pool := newSeen(t), pgtest.New(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.watch(pool, idemotel.WithPoolName("p"), idemotel.WithEvery(time.Hour))
	values := s.values()
	if n := values["db.client.connection.count db.client.connection.pool.name=p db.client.connection.state=used"]; n != 1 {
		t.Errorf("%v connections are shown as used", n)
	}
	if _, shown := values["idem.transactions"]; shown {
		t.Error("figures are shown that cannot have been read")
	}
	s.values() // a reading is waiting for the connection
	conn.Release()
	s.await("idem.transactions")
	if n := pool.Stat().AcquireCount(); n != 2 {
		t.Errorf("the pool gave a connection %d times, want once to the test and once to a reading", n)
	}
}

func TestStop_CancelsAReading(t *testing.T) {
	t.Parallel()
	s, pool := newSeen(t), pgtest.New(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	g := s.watch(pool)
	s.values()
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop() }()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(limit):
		t.Error("Stop waits for ever")
	}
}

func TestNew_RejectsInvalidOptions(t *testing.T) {
	t.Parallel()
	if _, err := idemotel.New(nil); err == nil {
		t.Error("a nil Option is accepted")
	}
	if _, err := idemotel.Watch(nil); err == nil {
		t.Error("no pool is accepted")
	}
	if _, err := idemotel.Watch(&pgxpool.Pool{}, idemotel.WithEvery(time.Millisecond)); err == nil {
		t.Error("reading all the time is accepted")
	}
}
