package operation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/operation"
)

const scope = "tenant-1/POST orders"

var (
	hashA = idem.Hash{1}
	hashB = idem.Hash{2}
)

// limit is how long a test waits for a signal.
const limit = waiting.Limit

// await returns when the channel is closed or has a value.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return waiting.For(t, what, c)
}

// eventually polls a condition until it holds.
var eventually = waiting.Until

// shop is the database of a test: the operations insert one row for each committed step.
type shop struct {
	t    testing.TB
	pool *pgxpool.Pool
	dsn  string
	bank *bank
}

func newShop(t testing.TB, configure ...func(*pgxpool.Config)) *shop {
	t.Helper()
	return shopOn(t, pgtest.DSN(t), configure...)
}

func shopOn(t testing.TB, dsn string, configure ...func(*pgxpool.Config)) *shop {
	t.Helper()
	s := &shop{t: t, pool: pgtest.Open(t, dsn, configure...), dsn: dsn, bank: &bank{}}
	s.exec(`create table if not exists done (id bigint generated always as identity primary key, step text not null, operation_id text)`)
	return s
}

func maxConns(n int32) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.MaxConns = n }
}

// through returns the shop with a pool that connects through the proxy.
func (s *shop) through(proxy *pgproxy.Proxy, configure ...func(*pgxpool.Config)) *shop {
	s.t.Helper()
	return &shop{t: s.t, pool: pgtest.Open(s.t, proxy.DSN(), configure...), dsn: proxy.DSN(), bank: s.bank}
}

// write returns the fn of a Tx that inserts a row, and returns the name of the step.
func write(step string) func(pgx.Tx) (string, error) {
	return func(tx pgx.Tx) (string, error) {
		id, _ := idem.ExecutionID(tx)
		_, err := tx.Exec(context.Background(), `insert into done (step, operation_id) values ($1, $2)`, step, id)
		return step + " is done", err
	}
}

// executing returns the fn of an Exec that executes SQL.
func executing(sql string) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), sql)
		return err
	}
}

func writeUndo(step string) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := write(step)(tx)
		return err
	}
}

// did returns the committed steps, in order.
func (s *shop) did() []string {
	s.t.Helper()
	rows, err := s.pool.Query(context.Background(), `select step from done order by id`)
	must(s.t, err)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(s.t, err)
	return steps
}

// exec executes SQL.
func (s *shop) exec(sql string, args ...any) {
	s.t.Helper()
	want(s.t, nil)(s.pool.Exec(context.Background(), sql, args...))
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want returns a function that ends the test unless an error is the wanted one.
func want(t testing.TB, wanted error) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		if !errors.Is(err, wanted) {
			t.Fatalf("the error is %v, want %v", err, wanted)
		}
	}
}

func (s *shop) count(sql string, args ...any) int {
	s.t.Helper()
	var n int
	must(s.t, s.pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// wantCount fails the test unless a query counts so many.
func (s *shop) wantCount(want int, sql string, args ...any) {
	s.t.Helper()
	if n := s.count(sql, args...); n != want {
		s.t.Errorf("%d, want %d: %s", n, want, sql)
	}
}

// wantDid fails the test unless these steps are committed, in this order. A text may hold several.
func (s *shop) wantDid(steps ...string) {
	s.t.Helper()
	if diff := cmp.Diff(strings.Join(steps, " "), strings.Join(s.did(), " ")); diff != "" {
		s.t.Errorf("(-want +committed):\n%s", diff)
	}
}

func (s *shop) text(sql string, args ...any) string {
	s.t.Helper()
	var text string
	must(s.t, s.pool.QueryRow(context.Background(), sql, args...).Scan(&text))
	return text
}

// define makes an operation without input.
func define(fn func(op *operation.Op) error, opts ...operation.Option) *operation.Definition[string] {
	return operation.Define("program", func(op *operation.Op, _ string) (idem.Response, error) { return created, fn(op) }, opts...)
}

// do calls Do with the key "k".
func (s *shop) do(d *operation.Definition[string], opts ...idem.Option) (idem.Result, error) {
	return d.Do(s.t.Context(), s.pool, scope, "k", hashA, "", opts...)
}

type answer struct {
	idem.Result
	err error
}

// goDo calls do in a goroutine.
func (s *shop) goDo(ctx context.Context, d *operation.Definition[string], opts ...idem.Option) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		res, err := d.Do(ctx, s.pool, scope, "k", hashA, "", opts...)
		answers <- answer{res, err}
	}()
	return answers
}

// parkedAt returns a function that ends the test unless an error says that the operation is parked.
func parkedAt(t testing.TB, step string, reason operation.Reason) func(any, error) *operation.ParkedError {
	return func(_ any, err error) (parked *operation.ParkedError) {
		t.Helper()
		if !errors.As(err, &parked) || parked.Step != step || parked.Reason != reason {
			t.Fatalf("%v, want it parked at %q for %s", err, step, reason)
		}
		return parked
	}
}

// wantBody returns a function that fails the test unless a call has returned this answer.
func wantBody(t testing.TB, body string) func(idem.Result, error) {
	return func(res idem.Result, err error) {
		t.Helper()
		if err != nil || string(res.Body) != body {
			t.Errorf("%s, %v, want %s", res.Body, err, body)
		}
	}
}

// wantRejected fails the test unless a call was rejected.
func wantRejected(t testing.TB) func(idem.Result, error) {
	return func(res idem.Result, err error) {
		t.Helper()
		if err != nil || !res.Rejected {
			t.Errorf("%+v, %v, want it rejected", res, err)
		}
	}
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// bank is another system, with books of its own. It recognizes a key.
type bank struct {
	mu      sync.Mutex
	charges map[string]int // attempts by key
}

func (b *bank) charge(_ context.Context, key string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.charges == nil {
		b.charges = map[string]int{}
	}
	b.charges[key]++
	return "charged " + key, nil
}

// keys returns how many different keys the bank has seen, and how many requests.
func (b *bank) keys() (different, asked int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.charges {
		asked += n
	}
	return len(b.charges), asked
}

var errDeclined = errors.New("the card is declined")

var created = idem.Response{Status: 201, Body: []byte(`"created"`)}

// checkout reserves, charges and confirms.
func (s *shop) checkout() *operation.Definition[string] {
	return operation.Define("checkout", func(op *operation.Op, in string) (idem.Response, error) {
		_, _ = operation.Tx(op, "reserve", write("reserve "+in), undoBy[string]("release "+in))
		charged, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge)
		_, other := operation.Tx(op, "confirm", write("confirm "+in))
		return idem.Response{Status: 201, Body: fmt.Appendf(nil, "%s: %s", in, charged)}, first(err, other)
	})
}

// wantOnce fails the test unless the operation of the key was done once, in order, and charged
// under one key.
func (s *shop) wantOnce(in string) {
	s.t.Helper()
	s.wantDid("reserve", in, "confirm", in)
	if n, _ := s.bank.keys(); n != 1 {
		s.t.Errorf("the bank was charged under %d keys", n)
	}
}
