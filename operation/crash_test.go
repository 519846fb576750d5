package operation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// ledger is the books of a bank: what has happened there, whatever the callers got.
type ledger struct {
	mu      sync.Mutex
	charges map[string]int
	refunds map[string]int
}

// charge books a request, unless the bank recognizes its key.
func (l *ledger) charge(key string, recognizes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.charges[key] == 0 || !recognizes {
		l.charges[key]++
	}
}

func (l *ledger) refund(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refunds[key] = 1
}

func (l *ledger) find(_ context.Context, key string) (string, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return "receipt", l.charges[key] > 0, nil
}

// order is an operation with every kind of step, its stock and its money.
type order struct {
	*shop
	number  int
	policy  string // of the charge: Keyed, Asked or Once
	rejects bool   // the function rejects when all is done
	bank    ledger
	fault   fault

	mu  sync.Mutex
	ids []string // of the operations that were begun

	canceled bool  // a person has called Cancel
	refused  error // by Cancel
}

func (o *order) key() string    { return fmt.Sprint("order ", o.number) }
func (o *order) String() string { return fmt.Sprint(o.policy, ", ", o.fault) }

// newStock opens a shop with a stock for each of many orders.
func newStock(t *testing.T) *shop {
	t.Helper()
	s := newShop(t, maxConns(12))
	s.exec(`create table stock (number int primary key, reserved int not null default 0, sold int not null default 0)`)
	return s
}

func (s *shop) order(t *testing.T, number int, policy string, rejects bool, f fault) *order {
	t.Helper()
	s.exec(`insert into stock (number) values ($1)`, number)
	return &order{shop: s, number: number, policy: policy, rejects: rejects, fault: f, bank: ledger{charges: map[string]int{}, refunds: map[string]int{}}}
}

func (o *order) move(sql string) func(pgx.Tx) (bool, error) {
	return func(tx pgx.Tx) (bool, error) {
		_, err := tx.Exec(context.Background(), `update stock set `+sql+` where number = $1`, o.number)
		return true, err
	}
}

// tx takes a Tx that moves the stock, with an undo that moves it back.
func (o *order) tx(op *operation.Op, name, sql, undo string) error {
	_, err := operation.Tx(op, name, o.move(sql), operation.UndoTx(func(tx pgx.Tx, _ bool) error {
		_, err := o.move(undo)(tx)
		return err
	}))
	return err
}

// charging returns the policy, the function and the undo of a call of the bank.
func (o *order) charging(policy string) (operation.Policy, func(context.Context, string) (string, error), operation.Undo[string]) {
	p := map[string]operation.Policy{"Keyed": operation.Keyed(time.Hour), "Asked": operation.Asked(o.bank.find), "Once": operation.Once}[policy]
	return p, func(ctx context.Context, key string) (string, error) {
			if ctx.Err() != nil {
				return "", operation.NotSent(ctx.Err())
			}
			o.bank.charge(key, policy == "Keyed")
			return "receipt", nil
		}, operation.UndoCall(operation.Keyed(time.Hour), func(_ context.Context, key, _ string) error {
			o.bank.refund(key)
			return nil
		})
}

func (o *order) child() *operation.Definition[string] {
	return operation.Define(o.key()+" ship", func(op *operation.Op, _ string) (idem.Response, error) {
		return created, o.tx(op, "sell", "sold = sold + 1", "sold = sold - 1")
	})
}

func (o *order) code() *operation.Definition[string] {
	return operation.Define(o.key(), func(op *operation.Op, _ string) (idem.Response, error) {
		o.mu.Lock()
		o.ids = append(o.ids, op.ID())
		o.mu.Unlock()
		err := steps(
			func() error { return o.tx(op, "reserve", "reserved = reserved + 1", "reserved = reserved - 1") },
			func() error {
				policy, charge, refund := o.charging(o.policy)
				_, err := operation.Call(op, "charge", policy, charge, refund)
				return err
			},
			func() error { return operation.Sleep(op, "nap", time.Millisecond) },
			func() error {
				calls := operation.Parallel(op)
				for _, policy := range []string{"Keyed", "Asked"} {
					p, charge, refund := o.charging(policy)
					operation.Go(calls, "book "+policy, p, charge, refund)
				}
				return calls.Wait()
			},
			func() error {
				_, err := operation.Child(op, "ship", o.child(), "", operation.UndoTx(func(tx pgx.Tx, _ idem.Response) error {
					_, err := o.move("sold = sold - 1")(tx)
					return err
				}))
				return err
			},
			func() error { return o.tx(op, "confirm", "reserved = reserved - 1", "reserved = reserved + 1") },
			op.Checkpoint)
		if err == nil && o.rejects {
			err = idem.Reject(declined)
		}
		return created, err
	})
}

// run works on the order and its child once, as one process does.
func (o *order) run(ctx context.Context, pool *pgxpool.Pool) (res idem.Result, err error) {
	if res, err = o.code().Do(ctx, pool, scope, o.key(), hashA, "", idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		return res, err
	}
	o.mu.Lock()
	ids := o.ids
	o.mu.Unlock()
	if len(ids) == 0 { // the connection was lost before the function was run
		return res, err
	}
	_ = o.child().Resume(ctx, pool, operation.ChildID(ids[len(ids)-1], "ship"))
	return o.code().Do(ctx, pool, scope, o.key(), hashA, "", idem.WithWait(0))
}

// steps takes steps until one fails.
func steps(all ...func() error) error {
	for _, step := range all {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// fault is how a process dies or loses its connection, and who resumes its operation.
type fault struct {
	at     int  // the statement
	behind bool // the server has executed it
	lives  bool // the connection alone is lost
	worker bool // a Worker goes on, and not a client
}

func (f fault) String() string {
	return fmt.Sprintf("statement %d, executed: %t, the process lives: %t, a Worker goes on: %t", f.at, f.behind, f.lives, f.worker)
}

// faults returns the faults of a process that sends these statements: one before each statement,
// and one after each COMMIT. Who resumes, and whether the process survives, alternates.
func faults(statements []string, turn int) (all []fault) {
	for at, sql := range statements {
		turn++
		if !pgtest.Sampled(turn) {
			continue
		}
		lives := turn%3 == 0
		all = append(all, fault{at: at, behind: lives && turn%2 == 0, lives: lives, worker: turn%4 < 2})
		if strings.EqualFold(sql, "commit") {
			all = append(all, fault{at: at, behind: true, worker: turn%4 < 2}, fault{at: at, behind: true, lives: true, worker: turn%4 >= 2})
		}
	}
	return all
}

// orders returns an order for each fault.
func (s *shop) orders(t *testing.T, policy string, rejects bool, turn int) (all []*order) {
	t.Helper()
	for i, f := range faults(s.order(t, 0, policy, rejects, fault{}).statements(t), turn) {
		all = append(all, s.order(t, i+1, policy, rejects, f))
	}
	t.Logf("%d faults", len(all))
	return all
}

// from matches the n-th statement, from 0, and all later ones, or only the n-th.
func from(n int, alone bool) pgproxy.Match {
	var mu sync.Mutex
	count := -1
	return func(pgproxy.Statement) bool {
		mu.Lock()
		defer mu.Unlock()
		count++
		return count == n || count > n && !alone
	}
}

// process returns a pool of one connection, and its proxy.
func (s *shop) process(t *testing.T) (*pgxpool.Pool, *pgproxy.Proxy) {
	t.Helper()
	proxy, err := pgproxy.New(s.dsn)
	must(t, err)
	config, err := pgxpool.ParseConfig(proxy.DSN())
	must(t, err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(t, err)
	return pool, proxy
}

// statements returns the statements of a process that works on the order from its beginning to its
// end.
func (o *order) statements(t *testing.T) (all []string) {
	t.Helper()
	pool, proxy := o.process(t)
	defer pool.Close()
	defer proxy.Close()
	var mu sync.Mutex
	defer proxy.Observe(func(e pgproxy.Event) {
		if e.Stage == pgproxy.Seen {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, e.SQL)
		}
	})()
	if res, err := o.run(t.Context(), pool); err != nil || res.Rejected != o.rejects {
		t.Fatalf("%+v, %v", res, err)
	}
	mu.Lock()
	defer mu.Unlock()
	return all
}

// suffer runs a process on the order until its fault.
func (o *order) suffer(t *testing.T, person *pgxpool.Pool) {
	pool, proxy := o.process(t)
	ctx, die := context.WithCancel(t.Context())
	defer die()
	point, stage := pgproxy.Before(from(o.fault.at, true)), pgproxy.Seen
	if o.fault.behind {
		point, stage = pgproxy.AfterAnswer(from(o.fault.at, true)), pgproxy.Answered
	}
	if person != nil {
		match := from(o.fault.at, true)
		defer proxy.Observe(func(e pgproxy.Event) {
			if e.Stage == stage && match(e.Statement) {
				o.cancel(t, person)
			}
		})()
	}
	trap := proxy.Arm(point, pgproxy.Reset)
	if !o.fault.lives { // nothing of what the process says before it is noticed that it is dead is heard
		proxy.ArmEach(pgproxy.Before(from(o.fault.at, false)), pgproxy.Reset)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		_, _ = o.run(ctx, pool)
	}()
	if !o.fault.lives {
		select {
		case <-trap.Fired():
			die()
			proxy.Close() // the dead reach no server
			pool.Close()
		case <-done:
		}
	}
	await(t, "the run of "+o.key(), done)
	proxy.Close()
	pool.Close()
	if !o.fault.lives {
		for _, id := range o.ids {
			operation.Forget(id)
		}
	}
}

// cancel cancels the order as a person. It returns when that is done, or if the process has to
// continue first.
func (o *order) cancel(t *testing.T, person *pgxpool.Pool) {
	_, id, _ := o.state()
	if id == "" {
		return
	}
	o.canceled = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.refused = operation.Cancel(t.Context(), person, id)
	}()
	eventually(t, "Cancel", func() bool {
		select {
		case <-done:
			return true
		default:
			return o.count(`select count(*) from pg_stat_activity where application_name = 'person' and wait_event_type = 'Lock' and datname = current_database()`) > 0
		}
	})
}

// state returns the state of the latest operation, if there is one.
func (o *order) state() (state operation.State, id string, reason operation.Reason) {
	o.t.Helper()
	err := o.pool.QueryRow(context.Background(), `select state, id::text, coalesce(reason, '') from idem.operations where key = $1 and parent is null order by created_at desc limit 1`,
		o.key()).Scan(&state, &id, &reason)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		o.t.Fatal(err)
	}
	return state, id, reason
}

// goOn calls as a client does, or resumes a canceled order, until the order has ended. A person
// resolves a call in doubt by the books of the bank.
func (o *order) goOn(t *testing.T) (res idem.Result, err error) {
	for deadline := time.Now().Add(limit); ; {
		if o.canceled {
			_, id, _ := o.state()
			err = o.code().Resume(t.Context(), o.pool, id)
		} else {
			res, err = o.code().Do(t.Context(), o.pool, scope, o.key(), hashA, "", idem.WithWait(limit))
		}
		if errors.Is(err, operation.ErrParked) {
			_, id, reason := o.state()
			if o.policy != "Once" || reason != operation.ReasonCallInDoubt {
				return res, err
			}
			finding := operation.NotHappened
			if _, happened, _ := o.bank.find(t.Context(), operation.CallKey(id, "call", "charge")); happened {
				finding = operation.Happened("receipt")
			}
			if err := operation.Resolve(t.Context(), o.pool, id, finding); err != nil && !errors.Is(err, operation.ErrNotParked) {
				return res, err
			}
			continue
		}
		if err == nil || errors.Is(err, operation.ErrCanceled) || time.Now().After(deadline) {
			return res, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// goOnAll runs a Worker or clients until each order has ended. The Worker runs the children.
func goOnAll(t *testing.T, s *shop, all []*order) {
	t.Helper()
	s.exec(`update idem.leases set expires_at = clock_timestamp()`) // of processes that are gone
	var definitions []operation.Runnable
	for _, o := range all {
		definitions = append(definitions, o.child())
		if o.fault.worker {
			definitions = append(definitions, o.code())
		}
	}
	s.workWith(t, operation.WorkerConfig{Logger: slog.New(slog.DiscardHandler)}, definitions...)
	forAll(all, func(o *order) {
		state, _, _ := o.state()
		if state == "" || state == operation.StateParked || state == operation.StateRunning && !o.fault.worker {
			_, _ = o.goOn(t)
		}
	})
	eventually(t, "the Worker to go on", func() bool { return s.count(`select count(*) from idem.operations where state = 'running'`) == 0 })
}

// forAll calls do for each element, several at a time.
func forAll[T any](all []T, do func(T)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, 32) // the dead try for some seconds to release what they have
	for _, one := range all {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			do(one)
		})
	}
	wg.Wait()
}

// books returns the stock and the bookings of the bank.
func (o *order) books() string {
	o.bank.mu.Lock()
	charges := 0
	for _, n := range o.bank.charges {
		charges += n
	}
	refunds := len(o.bank.refunds)
	o.bank.mu.Unlock()
	return o.text(`select format('%s reserved, %s sold, ', reserved, sold) from stock where number = $1`, o.number) + fmt.Sprintf("%d charges, %d refunds", charges, refunds)
}

const soldBooks = "0 reserved, 1 sold, 3 charges, 0 refunds"

// undoneBooks returns the books of an order that was undone after n charges.
func undoneBooks(n int) string {
	return fmt.Sprintf("0 reserved, 0 sold, %d charges, %[1]d refunds", n)
}

// A process dies, or loses its connection, at each of its statements. The order ends with one
// charge for each call, or with every charge refunded.
func TestDo_FaultAtAnyStatement(t *testing.T) {
	t.Parallel()
	for i, test := range []struct {
		policy  string
		rejects bool
	}{{"Keyed", true}, {"Once", false}} {
		t.Run(fmt.Sprint(test.policy, ", rejects: ", test.rejects), func(t *testing.T) {
			t.Parallel()
			s := newStock(t)
			all := s.orders(t, test.policy, test.rejects, i)
			forAll(all, func(o *order) { o.suffer(t, nil) })
			goOnAll(t, s, all)
			want := map[bool]string{true: undoneBooks(3), false: soldBooks}[test.rejects]
			forAll(all, func(o *order) {
				if res, err := o.goOn(t); err != nil || res.Rejected != test.rejects || o.books() != want {
					t.Errorf("%v: %+v, %v: %s", o, res, err, o.books())
				}
			})
		})
	}
}

// A person cancels an order at each of its statements, and its process may die there. The order
// completes, or is undone as a whole.
func TestCancel_AtAnyStatement(t *testing.T) {
	t.Parallel()
	for i, policy := range []string{"Keyed", "Once"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := newStock(t)
			person := pgtest.Open(t, s.dsn, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "person" })
			all := s.orders(t, policy, false, i)
			forAll(all, func(o *order) { o.suffer(t, person) })
			goOnAll(t, s, all)
			forAll(all, func(o *order) { o.wantCanceled(t) })
		})
	}
}

// wantCanceled fails the test unless the order is undone as a whole, or has completed before the
// Cancel.
func (o *order) wantCanceled(t *testing.T) {
	if state, _, _ := o.state(); state == operation.StateParked { // by a Worker
		_, _ = o.goOn(t)
	}
	state, _, reason := o.state()
	books := o.books()
	undone := slices.ContainsFunc([]int{0, 1, 2, 3}, func(n int) bool { return books == undoneBooks(n) }) // a call that has not happened is not made
	slices.Sort(o.ids)
	switch {
	case o.canceled && len(slices.Compact(o.ids)) > 1: // it was begun again
		t.Errorf("%v: begun as %v", o, o.ids)
	case (!o.canceled || o.refused != nil) && state == operation.StateCompleted && books == soldBooks:
	case o.canceled && o.refused == nil && state == operation.StateUndone && undone:
	default:
		t.Errorf("%v, canceled: %t, %v: it is %s %s: %s", o, o.canceled, o.refused, state, reason, books)
	}
}
