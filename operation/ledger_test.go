package operation_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// ledger is the books of a bank. They are what has happened, whatever a caller got.
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
	policy string // Keyed, Asked or Once
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

func (s *shop) till(t *testing.T, number int, policy string) *till {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), `insert into stock (number) values ($1)`, number); err != nil {
		t.Fatal(err)
	}
	return &till{shop: s, number: number, policy: policy, bank: ledger{forgets: policy != "Keyed"}}
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

// tx moves the stock. Each of undo is an undo of it.
func (c *till) tx(op *operation.Op, name, sql string, undo ...string) error {
	var undos []operation.Undo[bool]
	for _, sql := range undo {
		undos = append(undos, operation.UndoTx(func(tx pgx.Tx, _ bool) error {
			_, err := c.move(sql)(tx)
			return err
		}))
	}
	_, err := operation.Tx(op, name, c.move(sql), undos...)
	return err
}

func (c *till) charge(op *operation.Op, name string, undo ...operation.Undo[string]) error {
	policy := map[string]operation.Policy{"Keyed": operation.Keyed(time.Hour), "Asked": operation.Asked(c.bank.find), "Once": operation.Once}[c.policy]
	_, err := operation.Call(op, name, policy, func(ctx context.Context, key string) (string, error) {
		if ctx.Err() != nil {
			return "", operation.NotSent(ctx.Err())
		}
		receipt := c.bank.charge(key)
		if c.broken != nil {
			c.broken()
		}
		return receipt, nil
	}, undo...)
	return err
}

// refund is the undo of a charge.
func (c *till) refund() operation.Undo[string] {
	return operation.UndoCall(operation.Keyed(time.Hour), func(_ context.Context, key, _ string) error {
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

// state returns the state of the operation that was begun last, if it has a row.
func (c *till) state() (state operation.State, id string, reason operation.Reason) {
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
		if errors.Is(err, operation.ErrParked) || errors.Is(err, operation.ErrCanceled) {
			break
		}
	}
	return res, err
}

// person resolves a call in doubt by the bank's books, and retries an operation that is parked for another reason.
func (c *till) person(id string, reason operation.Reason) error {
	if reason != operation.ReasonCallInDoubt {
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
