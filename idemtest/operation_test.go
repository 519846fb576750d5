package idemtest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/operation"
)

// acquirer is a fake of the bank that charges cards. It recognizes repeated keys.
type acquirer struct {
	mu      sync.Mutex
	charged map[string]string
	all     int
}

func acquirerOf(pool *pgxpool.Pool) *acquirer {
	a, _ := acquirers.LoadOrStore(pool.Config().ConnConfig.Database, &acquirer{charged: map[string]string{}})
	return a.(*acquirer)
}

var acquirers sync.Map

// charge makes a charge, or returns the earlier charge under the key.
func (a *acquirer) charge(key string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.charged[key] == "" {
		a.all++
		a.charged[key] = fmt.Sprint("charge ", a.all)
	}
	return a.charged[key]
}

// checkout is the function of an operation, with a pool for its steps.
type checkout func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error)

type operationCase struct {
	name     string
	breaks   string
	code     checkout
	previous checkout
	change   func(s *idemtest.OperationSuite)
}

func operationSuite(code, previous checkout) idemtest.OperationSuite {
	call := func(code checkout, tenant, item string) idemtest.Call {
		return func(ctx context.Context, pool *pgxpool.Pool) (any, error) {
			d := operation.Define("checkout", func(op *operation.Op, item string) (idem.Response, error) { return code(op, pool, item) })
			return d.Do(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), item)
		}
	}
	suite := idemtest.OperationSuite{
		New: func(t testing.TB) *pgxpool.Pool {
			pool := idemtest.Pool(t)
			exec(t, pool, schema)
			return pool
		},
		Call: call(code, "ada", "teapot"), Other: call(code, "ada", "samovar"), Stranger: call(code, "bob", "teapot"),
		Effects: func(ctx context.Context, pool *pgxpool.Pool) (int, error) {
			orders, err := count("orders")(ctx, pool)
			a := acquirerOf(pool)
			a.mu.Lock()
			defer a.mu.Unlock()
			return orders + a.all, err
		},
		Patience: 10 * time.Second,
	}
	if previous != nil {
		suite.Previous = call(previous, "ada", "teapot")
	}
	return suite
}

func (c operationCase) labels() (name, breaks, also string) { return c.name, c.breaks, "" }

func (c operationCase) run(t testing.TB, times time.Duration) {
	suite := operationSuite(c.code, c.previous)
	if c.change != nil {
		c.change(&suite)
	}
	suite.Patience *= times
	idemtest.Operation(t, suite)
}

func TestOperation_FindsEachBadOperation(t *testing.T) { findsEach(t, badOperations) }

func TestOperation_AcceptsEachGoodOperation(t *testing.T) { acceptsEach(t, goodOperations) }

func reserve(op *operation.Op, item string) (int, error) { return reserveAs(op, "reserve", item) }

func reserveAs(op *operation.Op, name, item string) (int, error) {
	return operation.Tx(op, name, func(tx pgx.Tx) (int, error) { return insert(op.Context(), tx, "", item) })
}

func charge(op *operation.Op, pool *pgxpool.Pool, name string, policy operation.Policy) (string, error) {
	return operation.Call(op, name, policy, func(ctx context.Context, key string) (string, error) {
		return acquirerOf(pool).charge(key), nil
	})
}

func confirm(op *operation.Op, charge string) (idem.Response, error) {
	_, err := operation.Tx(op, "confirm", func(tx pgx.Tx) (bool, error) {
		_, err := tx.Exec(op.Context(), "UPDATE orders SET item = item || $1", charge)
		return true, err
	})
	return idem.Response{Status: 201, Body: []byte(charge)}, err
}

// chargeAndConfirm is the end of a correct operation.
func chargeAndConfirm(op *operation.Op, pool *pgxpool.Pool, name string) (idem.Response, error) {
	receipt, err := charge(op, pool, name, day)
	if err != nil {
		return idem.Response{}, err
	}
	return confirm(op, receipt)
}

// chargeOnly ends an operation with its receipt.
func chargeOnly(op *operation.Op, pool *pgxpool.Pool, policy operation.Policy) (idem.Response, error) {
	receipt, err := charge(op, pool, "charge", policy)
	return idem.Response{Status: 201, Body: []byte(receipt)}, err
}

var day = operation.Keyed(23 * time.Hour)

// whole is a correct operation.
func whole(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
	if _, err := reserve(op, item); err != nil {
		return idem.Response{}, err
	}
	return chargeAndConfirm(op, pool, "charge")
}

var goodOperations = []operationCase{
	{name: "calls at the same time, and ids of rows in the answer", code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		id, err := reserve(op, item)
		if err != nil {
			return idem.Response{}, err
		}
		calls := operation.Parallel(op)
		var receipts []*operation.Value[string]
		for _, name := range []string{"air", "room", "car"} {
			receipts = append(receipts, operation.Go(calls, name, day, func(_ context.Context, key string) (string, error) {
				return acquirerOf(pool).charge(key), nil
			}))
		}
		if err := calls.Wait(); err != nil {
			return idem.Response{}, err
		}
		body := fmt.Append(nil, id)
		for _, receipt := range receipts {
			text, err := receipt.Value()
			if err != nil {
				return idem.Response{}, err
			}
			body = append(body, ", "+text...)
		}
		return idem.Response{Status: 201, Body: body}, nil
	}},
	{name: "reserve, charge, confirm", code: whole, previous: whole},
	{name: "a Once call", code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		return chargeOnly(op, pool, operation.Once)
	}, change: func(s *idemtest.OperationSuite) { s.Parks = true }},
	{name: "new code asks Changed", previous: whole, code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		if _, err := reserve(op, item); err != nil {
			return idem.Response{}, err
		}
		receipt, err := charge(op, pool, "charge", day)
		if err != nil {
			return idem.Response{}, err
		}
		if op.Changed("notes the receipt") {
			_, err := operation.Tx(op, "note", func(tx pgx.Tx) (bool, error) {
				_, err := tx.Exec(op.Context(), "UPDATE orders SET tenant = $1", receipt)
				return true, err
			})
			if err != nil {
				return idem.Response{}, err
			}
		}
		return confirm(op, receipt)
	}},
}

var badOperations = []operationCase{
	// Known from aws-samples/sample-agentcore-cloudfront-x402-payments#40, eyra/mono#1639.
	{name: "charges without the key", breaks: "once-per-step", code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		receipt, err := operation.Call(op, "charge", day, func(context.Context, string) (string, error) {
			return acquirerOf(pool).charge(rand.Text()), nil
		})
		if err != nil {
			return idem.Response{}, err
		}
		return confirm(op, receipt)
	}},
	// Known from dbos-inc/dbos-transact-java#491: a body that ran twice.
	{name: "charges between the steps", breaks: "once-per-step", code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		if _, err := reserve(op, item); err != nil {
			return idem.Response{}, err
		}
		if err := op.Checkpoint(); err != nil {
			return idem.Response{}, err
		}
		return confirm(op, acquirerOf(pool).charge(rand.Text()))
	}},
	// Known from BlockRunAI/ClawRouter#317.
	{name: "charges in a transaction", breaks: "once-per-step", code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		receipt, err := operation.Tx(op, "charge", func(tx pgx.Tx) (string, error) {
			if _, err := insert(op.Context(), tx, "", item); err != nil {
				return "", err
			}
			return acquirerOf(pool).charge(rand.Text()), nil
		})
		return idem.Response{Status: 201, Body: []byte(receipt)}, err
	}},
	// Known from BlockRunAI/ClawRouter#317.
	{name: "writes on the pool", breaks: "once-per-step", code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		if _, err := operation.Tx(op, "reserve", func(pgx.Tx) (int, error) { return insert(op.Context(), pool, "", item) }); err != nil {
			return idem.Response{}, err
		}
		return chargeOnly(op, pool, day)
	}},
	// Known from the rules of Temporal and DBOS on determinism.
	{name: "names of steps are random", breaks: "goes-on", code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		if _, err := reserveAs(op, "reserve "+rand.Text(), item); err != nil {
			return idem.Response{}, err
		}
		return chargeAndConfirm(op, pool, "charge")
	}},
	// Known from the rules of Temporal and DBOS on determinism.
	{name: "the process decides which steps", breaks: "goes-on", code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		if _, warm := warmed.LoadOrStore(op.ID(), true); !warm {
			if _, err := reserveAs(op, "reserve cold", item); err != nil {
				return idem.Response{}, err
			}
		} else if _, err := reserve(op, item); err != nil {
			return idem.Response{}, err
		}
		return chargeOnly(op, pool, day)
	}},
	{name: "a Once call when the process dies", breaks: "goes-on", code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		return chargeOnly(op, pool, operation.Once)
	}},
	// Known from the rules of Temporal and DBOS on determinism.
	{name: "a step sets a variable", breaks: "answer-from-steps", code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		var fee int
		err := operation.Exec(op, "reserve", func(tx pgx.Tx) error {
			fee = 5
			_, err := insert(op.Context(), tx, "", item)
			return err
		})
		if err != nil {
			return idem.Response{}, err
		}
		charged, err := operation.Call(op, "charge", day, func(ctx context.Context, key string) (int, error) {
			acquirerOf(pool).charge(key)
			return fee, nil
		})
		return idem.Response{Status: 201, Body: fmt.Append(nil, charged)}, err
	}},
	{name: "one key for all checkouts", breaks: "every-key", code: whole, change: func(s *idemtest.OperationSuite) { s.Next = s.Call }},
	// Known from aws-samples/sample-agentcore-cloudfront-x402-payments#40.
	{name: "temporary failures are rejections", breaks: "failure-not-final", code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		_, err := operation.Tx(op, "reserve", func(tx pgx.Tx) (int, error) {
			id, err := insert(op.Context(), tx, "", item)
			if err != nil {
				return 0, operation.Final(errors.New("sold out"))
			}
			return id, nil
		})
		if err != nil {
			return idem.Response{}, idem.Reject(idem.Response{Status: 409})
		}
		return idem.Response{Status: 201}, nil
	}},
	// Known from the rules of Temporal and DBOS on versions.
	{name: "a step was added", breaks: "new-code-goes-on", previous: whole, code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		if _, err := operation.Tx(op, "check the stock", func(pgx.Tx) (bool, error) { return true, nil }); err != nil {
			return idem.Response{}, err
		}
		return whole(op, pool, item)
	}},
	// Known from the rules of Temporal and DBOS on versions.
	{name: "a step was removed", breaks: "new-code-goes-on", previous: whole, code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		receipt, err := charge(op, pool, "charge", day)
		if err != nil {
			return idem.Response{}, err
		}
		if _, err := reserve(op, item); err != nil {
			return idem.Response{}, err
		}
		return confirm(op, receipt)
	}},
	// Known from the rules of Temporal and DBOS on versions.
	{name: "a step was renamed", breaks: "new-code-goes-on", previous: whole, code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		if _, err := reserve(op, item); err != nil {
			return idem.Response{}, err
		}
		return chargeAndConfirm(op, pool, "charge the card")
	}},
	// Known from two builds that share a table, as in Gitlawb/gitlawb#210.
	{name: "the value of a step has another type", breaks: "new-code-goes-on", previous: whole, code: func(op *operation.Op, pool *pgxpool.Pool, item string) (idem.Response, error) {
		_, err := operation.Tx(op, "reserve", func(tx pgx.Tx) (struct{ ID int }, error) {
			id, err := insert(op.Context(), tx, "", item)
			return struct{ ID int }{id}, err
		})
		if err != nil {
			return idem.Response{}, err
		}
		return chargeAndConfirm(op, pool, "charge")
	}},
}

var warmed sync.Map
