package operation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// ledger is the books of a bank. They are what has happened, whatever a caller was told.
type ledger struct {
	mu      sync.Mutex
	forgets bool // it does not know a key again
	asked   int  // to charge
	charges map[string]int
	refunds map[string]int
}

func (l *ledger) charge(key string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.charges == nil {
		l.charges = map[string]int{}
	}
	l.asked++
	if l.charges[key] == 0 || l.forgets {
		l.charges[key]++
	}
	return "receipt"
}

func (l *ledger) refund(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refunds == nil {
		l.refunds = map[string]int{}
	}
	l.refunds[key] = 1
}

func (l *ledger) find(_ context.Context, key string) (string, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return "receipt", l.charges[key] > 0, nil
}

// sums returns how many charges and refunds there were, under whichever keys.
func (l *ledger) sums() (charges, refunds int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.charges {
		charges += n
	}
	return charges, len(l.refunds)
}

func (l *ledger) requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

// till is one customer's order: its stock, its money, and the operation that is to move both.
type till struct {
	*shop
	number int
	safety string // Keyed, Asked or Once
	bank   ledger
	mu     sync.Mutex
	id     string // of the operation that was begun last
	broken func() // what happens behind the next charge
}

// newTills opens a shop with a stock for each of many orders.
func newTills(t *testing.T) *shop {
	t.Helper()
	s := newShop(t, maxConns(12))
	_, err := s.pool.Exec(t.Context(), `create table stock (number int primary key, reserved int not null default 0 check (reserved >= 0), sold int not null default 0);
		create table once (number int unique deferrable initially deferred)`)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shop) till(t *testing.T, number int, safety string) *till {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), `insert into stock (number) values ($1)`, number); err != nil {
		t.Fatal(err)
	}
	return &till{shop: s, number: number, safety: safety, bank: ledger{forgets: safety != "Keyed"}}
}

func (c *till) key() string { return fmt.Sprint("order ", c.number) }

// define makes a definition of this order alone, so that a Worker has code of its own for each.
func (c *till) define(fn func(op *operation.Op) (idem.Response, error)) *operation.Definition[int] {
	return operation.Define(c.key(), func(op *operation.Op, _ int) (idem.Response, error) {
		c.mu.Lock()
		c.id = op.ID()
		c.mu.Unlock()
		return fn(op)
	})
}

func (c *till) move(sql string) func(pgx.Tx) (bool, error) {
	return func(tx pgx.Tx) (bool, error) {
		_, err := tx.Exec(context.Background(), `update stock set `+sql+` where number = $1`, c.number)
		return true, err
	}
}

func (c *till) tx(op *operation.Op, name, sql string) error {
	_, err := operation.Tx(op, name, c.move(sql))
	return err
}

func (c *till) undoTx(op *operation.Op, name, sql string) error {
	return operation.UndoTx(op, name, func(tx pgx.Tx) error {
		_, err := c.move(sql)(tx)
		return err
	})
}

func (c *till) charge(op *operation.Op, name string) error {
	safety := map[string]operation.Safety{"Keyed": operation.Keyed(time.Hour), "Asked": operation.Asked(c.bank.find), "Once": operation.Once}[c.safety]
	_, err := operation.Call(op, name, safety, func(ctx context.Context, key string) (string, error) {
		if ctx.Err() != nil {
			return "", operation.NotSent(ctx.Err())
		}
		receipt := c.bank.charge(key)
		if c.broken != nil {
			c.broken()
		}
		return receipt, nil
	})
	return err
}

func (c *till) refund(op *operation.Op) error {
	return operation.Undo(op, "refund", operation.Keyed(time.Hour), func(_ context.Context, key string) error {
		c.bank.refund(key)
		return nil
	})
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

func answers(text string, err error) (idem.Response, error) {
	return idem.Response{Status: 200, Body: []byte(text)}, err
}

// state tells of the operation that was begun last, if it has a row.
func (c *till) state() (state, id, reason string) {
	c.t.Helper()
	err := c.pool.QueryRow(context.Background(), `select state, id::text, coalesce(reason, '') from idem.operations where key = $1 order by created_at desc limit 1`,
		c.key()).Scan(&state, &id, &reason)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		c.t.Fatal(err)
	}
	return state, id, reason
}

// goOn calls as a client does, until there is an answer, or a person is needed.
func (c *till) goOn(d *operation.Definition[int]) (idem.Result, error) {
	var res idem.Result
	err := errTimeout
	for deadline := time.Now().Add(limit); err != nil && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		res, err = d.Do(c.t.Context(), c.pool, scope, c.key(), hashA, 0, idem.WithWait(limit))
		if errors.Is(err, operation.ErrParked) || errors.Is(err, operation.ErrCancelled) {
			break
		}
	}
	return res, err
}

// person does what a person does who reads the bank's books: says the outcome of a call, or has the code of before go on.
func (c *till) person(id, reason string) error {
	if !strings.Contains(reason, "not known") {
		return operation.Retry(c.t.Context(), c.pool, id)
	}
	finding := operation.NotHappened
	if charges, _ := c.bank.sums(); charges > 0 {
		finding = operation.Happened("receipt")
	}
	return operation.Resolve(c.t.Context(), c.pool, id, finding)
}

// books says what is in the stock and in the bank.
func (c *till) books() string {
	charges, refunds := c.bank.sums()
	return fmt.Sprintf("%s, %d charges, %d refunds", c.text(`select format('%s reserved, %s sold', reserved, sold) from stock where number = $1`, c.number), charges, refunds)
}

const (
	sold     = "0 reserved, 1 sold, 1 charges, 0 refunds"
	noSale   = "0 reserved, 0 sold, 0 charges, 0 refunds"
	takeback = "0 reserved, 0 sold, 1 charges, 1 refunds"
)

// settled is the answer in the end, once a person has done what is needed, and the code is right again.
func (c *till) settled(d *operation.Definition[int]) (idem.Result, error) {
	res, err := c.goOn(d)
	for left := 3; errors.Is(err, operation.ErrParked) && left > 0; left-- {
		_, id, reason := c.state()
		if err := c.person(id, reason); err != nil {
			return res, err
		}
		res, err = c.goOn(d)
	}
	return res, err
}
