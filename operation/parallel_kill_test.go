package operation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// travels are what a victim books at the same time, by its input. What is booked is in the books of a bank that all processes reach.
var travels = map[string][]string{
	"two":             {"air", "taxi"},
	"three":           {"air", "room", "taxi"},
	"three, rejected": {"air", "room", "taxi"},
}

// booking is the policy of the call of that name.
func booking(pool *pgxpool.Pool, name string) operation.Policy {
	switch name {
	case "air":
		return operation.Keyed(time.Hour)
	case "room":
		return operation.Asked(func(ctx context.Context, key string) (value string, done bool, err error) {
			err = pool.QueryRow(ctx, `select what || 'd ' || key from bank where key = $1`, key).Scan(&value)
			if errors.Is(err, pgx.ErrNoRows) {
				return "", false, nil
			}
			return value, err == nil, err
		})
	}
	return operation.Once
}

// travel reserves, books everything at the same time, and confirms.
func travel(pool *pgxpool.Pool, names []string, at func(string)) *operation.Definition[string] {
	return operation.Define("travel", func(op *operation.Op, in string) (idem.Response, error) {
		if _, err := operation.Tx(op, "reserve", write("reserve"), undoBy[string]("release")); err != nil {
			return idem.Response{}, err
		}
		at("before all")
		calls := operation.Parallel(op)
		var booked []*operation.Value[string]
		for _, name := range names {
			booked = append(booked, operation.Go(calls, name, booking(pool, name), func(ctx context.Context, key string) (string, error) {
				at("before " + name)
				defer at("booked " + name)
				return bankTable(context.WithoutCancel(ctx), pool, name, key) // once it is sent it happens now or never
			}, operation.UndoCall(operation.Keyed(time.Hour), func(ctx context.Context, key, _ string) error {
				_, err := bankTable(ctx, pool, "cancel "+name, key)
				return err
			})))
		}
		if err := calls.Wait(); err != nil {
			return idem.Response{}, err
		}
		at("behind all")
		if _, err := operation.Tx(op, "confirm", write("confirm")); err != nil {
			return idem.Response{}, err
		}
		at("behind confirm")
		if strings.Contains(in, "rejected") {
			if err := op.Checkpoint(); err != nil {
				return idem.Response{}, err
			}
			return idem.Response{}, idem.Reject(declined)
		}
		var body string
		for _, b := range booked {
			value, err := b.Value()
			if err != nil {
				return idem.Response{}, err
			}
			body += value + "\n"
		}
		return idem.Response{Status: 201, Body: []byte(body)}, nil
	})
}

// gone waits until the server has ended the sessions of a process that was killed: what it has sent may still happen until then.
func (s *shop) gone(application string) {
	s.t.Helper()
	eventually(s.t, "the sessions of the killed process to end", func() bool {
		return s.count(`select count(*) from pg_stat_activity where datname = current_database() and application_name = $1 and state <> 'idle'`, application) == 0
	})
}

// asksTheBank says of each call that is parked what the books say.
func (s *shop) asksTheBank(t *testing.T) {
	t.Helper()
	var id, step string
	err := s.pool.QueryRow(t.Context(), `select id::text, reason_step from idem.operations where state = 'parked'`).Scan(&id, &step)
	if errors.Is(err, pgx.ErrNoRows) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if step != "taxi" {
		t.Fatalf("it is parked at %q: %s", step, s.text(`select reason_text from idem.operations`))
	}
	finding, key := operation.NotHappened, operation.CallKey(id, "call", step)
	if s.count(`select count(*) from bank where key = $1`, key) == 1 {
		finding = operation.Happened("taxid " + key)
	}
	if err := operation.Resolve(t.Context(), s.pool, id, finding.Of(step)); err != nil && !errors.Is(err, operation.ErrNotParked) {
		t.Fatal(err)
	}
}

// finish goes on with the operation until it has an answer, by calls of its key or by a Worker, and looks at what it has left behind.
func (s *shop) finish(t *testing.T, in string, byWorker bool) {
	t.Helper()
	d := travel(s.pool, travels[in], func(string) {})
	if byWorker && s.count(`select count(*) from idem.operations`) > 0 {
		s.work(t, d)
		eventually(t, "the operation to end", func() bool {
			s.asksTheBank(t)
			return s.count(`select count(*) from idem.operations where ended_at is not null`) == 1
		})
	}
	var res idem.Result
	eventually(t, "an answer", func() bool {
		if s.asksTheBank(t); s.count(`select count(*) from idem.operations where state = 'undone'`) == 1 {
			return true
		}
		var err error
		res, err = d.Do(t.Context(), s.pool, scope, "k", hashA, in, idem.WithWait(time.Second))
		return err == nil || errors.Is(err, operation.ErrNotHappened)
	})
	if s.count(`select count(*) from idem.operations where state = 'undone'`) == 1 {
		s.wantNoTaxi(t)
		return
	}
	again, err := d.Do(t.Context(), s.pool, scope, "k", hashA, in)
	if err != nil || string(again.Body) != string(res.Body) || again.Status != res.Status {
		t.Errorf("first %s, then %s, %v", res.Body, again.Body, err)
	}
	id, body, books := s.operationID(), "", len(travels[in])
	for _, name := range travels[in] {
		body += name + "d " + operation.CallKey(id, "call", name) + "\n"
	}
	did := "[reserve confirm]"
	if strings.Contains(in, "rejected") {
		body, did, books = string(declined.Body), "[reserve confirm release]", 2*books
		var undone string
		for _, name := range travels[in] {
			undone = "cancel " + name + " " + undone
		}
		if got := s.text(`select string_agg(what, ' ' order by id) || ' ' from bank where what like 'cancel%'`); got != undone {
			t.Errorf("undone is %q, want %q", got, undone)
		}
	}
	if string(res.Body) != body {
		t.Errorf("the answer is %s, want %s", res.Body, body)
	}
	if got := fmt.Sprint(s.did()); got != did {
		t.Errorf("what is committed is %s", got)
	}
	if n := s.count(`select count(*) from bank`); n != books {
		t.Errorf("the books have %d rows, want %d: %s", n, books, s.text(`select string_agg(what, ' ') from bank`))
	}
	if n := s.count(`select count(*) from bank where what in ('room', 'taxi') and asked > 1`); n != 0 {
		t.Errorf("%d calls that must not be were made twice", n)
	}
}

// wantNoTaxi fails the test unless everything is undone because a person has said that the taxi was not booked.
func (s *shop) wantNoTaxi(t *testing.T) {
	t.Helper()
	const rows = `select coalesce(string_agg(what, ' ' order by `
	booked := s.text(rows + `'cancel ' || what), '') from bank where what not like 'cancel%'`)
	undone := s.text(rows + `what), '') from bank where what like 'cancel%'`)
	if strings.ReplaceAll(undone, "cancel ", "") != booked || strings.Contains(booked, "taxi") {
		t.Errorf("booked is %q, and undone %q", booked, undone)
	}
	if got := fmt.Sprint(s.did()); got != "[reserve release]" {
		t.Errorf("what is committed is %s", got)
	}
}

// A process is killed while some of the calls have returned, and others have not.
func TestParallel_KilledProcessSettlesEachByItsPolicy(t *testing.T) {
	t.Parallel()
	for in, names := range travels {
		points := []string{"before all", "behind all", "behind confirm"}
		for _, name := range names {
			points = append(points, "before "+name, "booked "+name)
		}
		for i, point := range points {
			for _, byWorker := range []bool{false, true} {
				if !pgtest.Sampled(i) {
					continue
				}
				t.Run(fmt.Sprint(in, ", ", point, ", by a worker: ", byWorker), func(t *testing.T) {
					t.Parallel()
					s := newBankShop(t)
					newVictim(t, s, point, in, "PGAPPNAME=victim").kill()
					s.gone("victim")
					s.finish(t, in, byWorker)
				})
			}
		}
	}
}

// A process is killed in front of a statement, or behind its answer.
func TestParallel_ProcessKilledAtAnyStatement(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"two", "three, rejected"} {
		statements := travelStatements(t, in)
		for n := range statements {
			for _, answered := range []bool{false, true} {
				if !pgtest.Sampled(n) {
					continue
				}
				byWorker := n%2 == 0
				t.Run(fmt.Sprintf("%s, at statement %d, answered: %v, by a worker: %v", in, n, answered, byWorker), func(t *testing.T) {
					t.Parallel()
					s := newBankShop(t)
					s.killedAt(t, in, n, answered)
					s.finish(t, in, byWorker)
				})
			}
		}
	}
}

// The connection breaks, and the process lives.
func TestParallel_ConnectionCutAtAnyStatement(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"two", "three, rejected"} {
		statements := travelStatements(t, in)
		for n := range statements {
			if !pgtest.Sampled(n) {
				continue
			}
			for name, at := range map[string]func(pgproxy.Match) pgproxy.Point{
				"before": pgproxy.Before, "after the answer": func(m pgproxy.Match) pgproxy.Point { return pgproxy.AfterAnswer(m) },
			} {
				t.Run(fmt.Sprintf("%s, %s of statement %d", in, name, n), func(t *testing.T) {
					t.Parallel()
					s := newBankShop(t)
					proxy := pgtest.Proxy(t, s.dsn)
					behind := s.through(proxy, maxConns(2))
					proxy.Arm(at(nth(n)), pgproxy.Reset)
					d := travel(s.pool, travels[in], func(string) {}) // its bank is not behind the proxy
					_, _ = d.Do(t.Context(), behind.pool, scope, "k", hashA, in)
					s.finish(t, in, n%2 == 0)
				})
			}
		}
	}
}

// killedAt has a process begin with the operation, and kills it in front of its nth statement, or when that is answered.
func (s *shop) killedAt(t *testing.T, in string, n int, answered bool) {
	t.Helper()
	proxy := pgtest.Proxy(t, s.dsn)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimOf+"="+proxy.DSN(), victimAt+"=nowhere", victimIn+"="+in, victimBank+"="+s.dsn, "PGAPPNAME=victim")
	var count atomic.Int64
	started := make(chan struct{})
	kill := func() bool {
		if count.Add(1) != int64(n+1) {
			return false
		}
		<-started
		_ = cmd.Process.Kill()
		return true
	}
	if answered {
		defer proxy.Observe(func(e pgproxy.Event) {
			if e.Stage == pgproxy.Answered {
				kill()
			}
		})()
	} else {
		proxy.Arm(pgproxy.Before(func(pgproxy.Statement) bool { return kill() }), pgproxy.Reset)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	_ = cmd.Wait()
	s.gone("victim")
}

// travelStatements returns what is sent if nothing breaks.
func travelStatements(t *testing.T, in string) []string {
	t.Helper()
	s := newBankShop(t)
	proxy := pgtest.Proxy(t, s.dsn)
	var r recorder
	defer proxy.Observe(r.watch)()
	if _, err := travel(s.pool, travels[in], func(string) {}).Do(t.Context(), s.through(proxy, maxConns(2)).pool, scope, "k", hashA, in); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sql
}
