package operation_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// death is how the process of an operation ends, or loses its connection, and who goes on.
type death struct {
	at     int  // the statement
	behind bool // the server has executed it
	cut    bool // the connection alone is lost
	worker bool // a Worker goes on, and not a client
}

func (d death) String() string {
	text := fmt.Sprint(" statement ", d.at)
	switch d.behind {
	case true:
		text = "behind" + text
	default:
		text = "before" + text
	}
	if d.cut {
		text += ", and lives"
	}
	if d.worker {
		text += ", and a Worker goes on"
	}
	return text
}

// deaths are those of a process that sends these statements: before each of them, and behind each COMMIT, because to die behind another
// one is to die before the next. How it ends, and who goes on, take turns; a process that lives may have lost any answer. Where a statement
// is repeated many times in a transaction, some are left out.
func deaths(statements []string, turn int) []death {
	var all []death
	seen := map[string]int{}
	for at, sql := range statements {
		seen[sql]++
		if seen[sql] > 3 && at%13 != 0 && !isCommit(sql) && (at == 0 || !isCommit(statements[at-1])) {
			continue
		}
		turn++
		if !pgtest.Sampled(turn) {
			continue
		}
		lives := turn%3 == 0
		all = append(all, death{at: at, behind: lives && turn%2 == 0, cut: lives, worker: turn%4 < 2})
		if isCommit(sql) {
			all = append(all, death{at: at, behind: true, worker: turn%4 < 2}, death{at: at, behind: true, cut: true, worker: turn%4 >= 2})
		}
	}
	return all
}

func isCommit(sql string) bool { return strings.EqualFold(sql, "commit") }

// process is one that works on an operation, and dies.
type process struct {
	pool  *pgxpool.Pool
	proxy *pgproxy.Proxy
	seen  recorder
	trap  *pgproxy.Trap // at which it dies
}

func (s *shop) process(t *testing.T) *process {
	t.Helper()
	proxy, err := pgproxy.New(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(proxy.DSN())
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	return &process{pool: pool, proxy: proxy}
}

// dies arranges for a death.
func (p *process) dies(d death) {
	point := pgproxy.Before(nth(d.at))
	if d.behind {
		point = pgproxy.AfterAnswer(nth(d.at))
	}
	trap := p.proxy.Arm(point, pgproxy.Reset)
	if d.cut {
		return
	}
	p.trap = trap
	p.proxy.ArmEach(pgproxy.Before(from(d.at)), pgproxy.Reset) // what it would say before it is noticed that it is dead
}

// from matches the n-th statement, from 0, and all that follow.
func from(n int) pgproxy.Match {
	var mu sync.Mutex
	count := -1
	return func(pgproxy.Statement) bool {
		mu.Lock()
		defer mu.Unlock()
		count++
		return count >= n
	}
}

// end ends the process. If it is dead, what it had in memory is gone.
func (p *process) end(c *till, d death) {
	p.proxy.Close()
	p.pool.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !d.cut {
		operation.Forget(c.id)
	}
}

// statements returns what a process sends that works on the order from its beginning to its end.
func (c *till) statements(t *testing.T, d *operation.Definition[int]) []string {
	t.Helper()
	p := c.process(t)
	defer p.end(c, death{})
	defer p.proxy.Observe(p.seen.watch)()
	c.run(t, p, d)
	p.seen.mu.Lock()
	defer p.seen.mu.Unlock()
	return slices.Clone(p.seen.sql)
}

// dies has a process work on the order, and die.
func (c *till) dies(t *testing.T, death death, d *operation.Definition[int]) {
	p := c.process(t)
	p.dies(death)
	c.run(t, p, d)
	p.end(c, death)
}

// run works on the order once, however that ends.
func (c *till) run(t *testing.T, p *process, d *operation.Definition[int]) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		_, _ = d.Do(ctx, p.pool, scope, c.key(), hashA, 0)
	}()
	if p.trap != nil {
		select {
		case <-p.trap.Fired():
			cancel()
			_ = p.proxy.Close() // the dead reach no server, and do not go on trying
			p.pool.Close()
		case <-done:
		}
	}
	await(t, "the run of "+c.key(), done)
}

// forAll does something for each of many, some at a time.
func forAll[T any](all []T, do func(T)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, 8)
	for _, one := range all {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			do(one)
		})
	}
	wg.Wait()
}

// orphan is an order whose process is dead, with the code that goes on.
type orphan interface {
	ends() (*till, death)
	code() *operation.Definition[int]
}

// goOnAll has a Worker, or clients, go on with orders until each has ended, or is parked. An order without a row needs its client.
func goOnAll[T orphan](t *testing.T, s *shop, all []T) {
	t.Helper()
	var definitions []operation.Runnable
	for _, one := range all {
		if _, d := one.ends(); d.worker {
			definitions = append(definitions, one.code())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- operation.NewWorker(s.pool, operation.WorkerConfig{Poll: time.Second / 2, Logger: slog.New(slog.DiscardHandler)}, definitions...).Run(ctx)
	}()
	forAll(all, func(one T) {
		c, d := one.ends()
		if state, _, _ := c.state(); !d.worker || state == "" {
			_, _ = c.goOn(one.code())
		}
	})
	eventually(t, "the Worker to go on", func() bool { return s.count(`select count(*) from idem.operations where state = 'running'`) == 0 })
	cancel()
	if err := await(t, "the Worker to end", ended); err != nil {
		t.Error(err)
	}
}
