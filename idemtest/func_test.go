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
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

// buy places an order of an item for a tenant.
type buy func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error)

const orderKey = "8e03978e-40d5-43dd-bc93-6894a57f9324"

type funcCase struct {
	name   string
	breaks string
	also   string // a second promise that breaks if two requests fall into different seconds
	buy    buy
	change func(s *idemtest.FuncSuite)
}

func funcSuite(f buy) idemtest.FuncSuite {
	call := func(tenant, item string) idemtest.Call {
		return func(ctx context.Context, pool *pgxpool.Pool) (any, error) { return f(ctx, pool, tenant, item) }
	}
	return idemtest.FuncSuite{
		New: func(t testing.TB) *pgxpool.Pool {
			pool := idemtest.Pool(t)
			exec(t, pool, schema)
			return pool
		},
		Call: call("ada", "teapot"), Other: call("ada", "samovar"), Stranger: call("bob", "teapot"),
		Effects:  count("orders"),
		Patience: 6 * time.Second,
	}
}

func (c funcCase) labels() (name, breaks, also string) { return c.name, c.breaks, c.also }

func (c funcCase) run(t testing.TB, times time.Duration) {
	suite := funcSuite(c.buy)
	if c.change != nil {
		c.change(&suite)
	}
	suite.Patience *= times
	idemtest.Func(t, suite)
}

func TestFunc_FindsEachBadFunction(t *testing.T) { findsEach(t, badFuncs) }

func TestFunc_AcceptsEachGoodFunction(t *testing.T) { acceptsEach(t, goodFuncs) }

// inserts returns a correct fn.
func inserts(ctx context.Context, tenant, item string) func(tx pgx.Tx) (int, error) {
	return func(tx pgx.Tx) (int, error) { return insert(ctx, tx, tenant, item) }
}

// inserting returns a correct buy with these options.
func inserting(opts ...idem.Option) buy {
	return func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		return value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), inserts(ctx, tenant, item), opts...))
	}
}

// purchase is one run of a function of DoJSON.
type purchase struct {
	ctx          context.Context
	pool         *pgxpool.Pool
	tx           pgx.Tx
	tenant, item string
}

func (p purchase) insertOn(db rower) (int, error) { return insert(p.ctx, db, p.tenant, p.item) }

// inside returns a buy whose transaction runs fn.
func inside(fn func(purchase) (int, error)) buy {
	return func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		return value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (int, error) {
			return fn(purchase{ctx, pool, tx, tenant, item})
		}))
	}
}

type rower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func insert(ctx context.Context, db rower, tenant, item string) (id int, err error) {
	err = db.QueryRow(ctx, "INSERT INTO orders (tenant, item) VALUES ($1, $2) RETURNING id", tenant, item).Scan(&id)
	return id, err
}

// value returns the first result of DoJSON.
func value[T any](v T, _ idem.Result, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

var goodFuncs = []funcCase{
	{name: "DoJSON", buy: inserting()},
	{name: "Do", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		return idem.Do(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (idem.Response, error) {
			id, err := insert(ctx, tx, tenant, item)
			return idem.Response{Status: 201, Body: fmt.Append(nil, id)}, err
		})
	}},
	{name: "DoTx in a transaction of its own", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (result any, err error) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			result, err = idem.DoTx(ctx, tx, tenant, orderKey, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (idem.Response, error) {
				_, err := insert(ctx, tx, tenant, item)
				return idem.Response{Status: 201}, err
			})
			return err
		})
		return result, err
	}},
	{name: "two statements and a savepoint that fails", buy: inside(func(p purchase) (int, error) {
		err := pgx.BeginFunc(p.ctx, p.tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(p.ctx, "INSERT INTO missing VALUES (1)")
			return err
		})
		if err == nil {
			return 0, errors.New("there is a table that is missing")
		}
		return p.insertOn(p.tx)
	})},
	{name: "at repeatable read without retries", buy: inserting(idem.WithTxOptions(pgx.TxOptions{IsoLevel: pgx.RepeatableRead}), idem.WithRetries(0), idem.WithWait(0))},
	{name: "two calls of Do, one after the other", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		hash := idem.HashBytes([]byte(item))
		id, _, err := idem.DoJSON(ctx, pool, tenant, orderKey, hash, inserts(ctx, tenant, item))
		if err != nil {
			return nil, err
		}
		_, _, err = idem.DoJSON(ctx, pool, tenant, orderKey+" packed", hash, inserts(ctx, tenant, "box"))
		return id, err
	}},
	{name: "remembered in memory after the commit", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		cache, _ := seen.LoadOrStore(pool, &sync.Map{})
		if id, there := cache.(*sync.Map).Load(tenant + item); there {
			return id, nil
		}
		id, err := value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), inserts(ctx, tenant, item)))
		if err == nil {
			cache.(*sync.Map).Store(tenant+item, id)
		}
		return id, err
	}, change: func(s *idemtest.FuncSuite) { s.Within = time.Minute }},
	{name: "one at a time in a process", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		defer exclusive(pool)()
		return value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), inserts(ctx, tenant, item)))
	}},
	{name: "errors with text added", buy: inside(func(p purchase) (int, error) {
		id, err := p.insertOn(p.tx)
		if err != nil {
			return 0, fmt.Errorf("place an order: %w", err)
		}
		return id, nil
	})},
}

var badFuncs = []funcCase{
	{name: "effect on the pool", breaks: "effect-in-transaction", buy: inside(func(p purchase) (int, error) {
		return p.insertOn(p.pool)
	})},
	{name: "a transaction of its own inside", breaks: "effect-in-transaction", buy: inside(func(p purchase) (id int, err error) {
		err = pgx.BeginFunc(p.ctx, p.pool, func(tx pgx.Tx) error { id, err = p.insertOn(tx); return err })
		return id, err
	})},
	// Known from own-pay/OwnPay#222, BlockRunAI/ClawRouter#317.
	{name: "another system is charged inside", breaks: "effect-in-transaction", buy: inside(func(p purchase) (int, error) {
		bank(p.pool).Add(1)
		return p.insertOn(p.tx)
	}), change: func(s *idemtest.FuncSuite) {
		s.Effects = func(ctx context.Context, pool *pgxpool.Pool) (int, error) { return int(bank(pool).Load()), nil }
	}},
	// Known from functions that are run again, as in stroppy-io/stroppy#167.
	{name: "state survives from run to run", breaks: "effect-in-transaction", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		var items []string
		return value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (bool, error) {
			items = append(items, item)
			for _, item := range items {
				if _, err := insert(ctx, tx, tenant, item); err != nil {
					return false, err
				}
			}
			return true, nil
		}))
	}},
	{name: "effect after Do", breaks: "effect-with-record", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		res, err := idem.Do(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (idem.Response, error) {
			return idem.Response{Status: 201}, nil
		})
		if err == nil && !res.Replayed {
			_, err = insert(ctx, pool, tenant, item)
		}
		return res, err
	}},
	{name: "effect before Do", breaks: "one-effect", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		if _, err := insert(ctx, pool, tenant, item); err != nil {
			return nil, err
		}
		return idem.Do(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (idem.Response, error) {
			return idem.Response{Status: 201}, nil
		})
	}},
	{name: "result in a variable", breaks: "full-answer", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		var id int
		_, err := idem.Do(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (_ idem.Response, err error) {
			id, err = insert(ctx, tx, tenant, item)
			return idem.Response{Status: 201}, err
		})
		return id, err
	}},
	// Known from fullstackhero/dotnet-starter-kit#1333 (201 becomes 200).
	{name: "answer says whether it is a replay", breaks: "same-answer", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		_, res, err := idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), inserts(ctx, tenant, item))
		return map[string]bool{"created": !res.Replayed}, err
	}},
	{name: "answer is read from the table afterwards", breaks: "same-answer", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		_, _, err := idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (int, error) {
			if _, err := tx.Exec(ctx, "CREATE SEQUENCE IF NOT EXISTS reads"); err != nil {
				return 0, err
			}
			return insert(ctx, tx, tenant, item)
		})
		if err != nil {
			return nil, err
		}
		var state int
		err = pool.QueryRow(ctx, "SELECT nextval('reads')").Scan(&state)
		return state, err
	}},
	{name: "a key for each call", breaks: "one-key", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		return value(idem.DoJSON(ctx, pool, tenant, rand.Text(), idem.HashBytes([]byte(item)), inserts(ctx, tenant, item)))
	}},
	{name: "a key from the time", breaks: "one-key", also: "payload-refused", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		return value(idem.DoJSON(ctx, pool, tenant, "order "+time.Now().Format(time.DateTime), idem.HashBytes([]byte(item)), inserts(ctx, tenant, item)))
	}},
	// Known from eyra/mono#1639.
	{name: "a key for each attempt after a lost answer", breaks: "one-key", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		key := orderKey
		for {
			v, err := lossy(ctx, pool, tenant, key, item)
			if err == nil || errors.Is(err, idem.ErrMismatch) || errors.Is(err, idem.ErrInProgress) || ctx.Err() != nil {
				return v, err
			}
			key = rand.Text()
		}
	}},
	// Known from Universal-Commerce-Protocol/ucp#664 (an envelope that varies).
	{name: "hash with the time", breaks: "same-fingerprint", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		return value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item), []byte(time.Now().Format(time.RFC3339Nano))), inserts(ctx, tenant, item)))
	}},
	// Known from Gitlawb/node#210 (a hash that is not stable).
	{name: "hash of a pointer", breaks: "same-fingerprint", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		return value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes(fmt.Appendf(nil, "%p", &item)), inserts(ctx, tenant, item)))
	}},
	// Known from mikkelchokolate/Veil#65 (a part of the request ignored).
	{name: "one hash for all", breaks: "payload-in-fingerprint", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		return value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes(), inserts(ctx, tenant, item)))
	}},
	{name: "mismatch is treated as a duplicate", breaks: "payload-in-fingerprint", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		v, err := value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), inserts(ctx, tenant, item)))
		if errors.Is(err, idem.ErrMismatch) {
			return 0, nil
		}
		return v, err
	}},
	{name: "key from the payload", breaks: "payload-refused", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		hash := idem.HashBytes([]byte(item))
		return value(idem.DoJSON(ctx, pool, tenant, hash.String(), hash, inserts(ctx, tenant, item)))
	}},
	// Known from elastic/kibana#279567.
	{name: "one scope for all", breaks: "own-scope", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		return value(idem.DoJSON(ctx, pool, "orders", orderKey, idem.HashBytes([]byte(item)), inserts(ctx, tenant, item)))
	}},
	{name: "one key for all orders", breaks: "every-key", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		return value(idem.DoJSON(ctx, pool, tenant, "order", idem.HashBytes([]byte(item)), inserts(ctx, tenant, item)))
	}, change: func(s *idemtest.FuncSuite) { s.Next = s.Call }},
	{name: "remembered in memory before the commit", breaks: "answer-after-commit", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		cache, _ := seen.LoadOrStore(pool, &sync.Map{})
		if id, there := cache.(*sync.Map).Load(tenant + item); there {
			return id, nil
		}
		return value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (int, error) {
			id, err := insert(ctx, tx, tenant, item)
			if err == nil {
				cache.(*sync.Map).Store(tenant+item, id)
			}
			return id, err
		}))
	}},
	// Known from LerianStudio/midaz#709.
	{name: "every error is a rejection", breaks: "failure-not-final", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		return idem.Do(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (idem.Response, error) {
			if _, err := insert(ctx, tx, tenant, item); err != nil {
				return idem.Response{}, idem.Reject(idem.Response{Status: 422})
			}
			return idem.Response{Status: 201}, nil
		})
	}},
	// Known from stephenafamo/bob#661.
	{name: "every error is logged and ignored", breaks: "answer-after-commit", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		idem.Do(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (idem.Response, error) {
			_, err := insert(ctx, tx, tenant, item)
			return idem.Response{Status: 201}, err
		}, idem.WithRetries(0))
		return "placed", nil
	}, change: func(s *idemtest.FuncSuite) { s.Other, s.Stranger = nil, nil }},
	// Known from oban-bg/oban#1093: the loser assumes that the winner commits.
	{name: "in progress is treated as done", breaks: "same-answer", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		v, err := value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), inserts(ctx, tenant, item), idem.WithWait(0)))
		if errors.Is(err, idem.ErrInProgress) {
			return nil, nil
		}
		return v, err
	}},
	// Known from pikkujs/pikku#1314.
	{name: "Do inside Do", breaks: "one-connection", buy: inside(func(p purchase) (int, error) {
		_, err := idem.Do(p.ctx, p.pool, p.tenant, "audit", idem.HashBytes([]byte(p.item)), func(tx pgx.Tx) (idem.Response, error) {
			return idem.Response{}, nil
		})
		if err != nil {
			return 0, err
		}
		return p.insertOn(p.tx)
	})},
	// Known from authgear/authgear-server#1724.
	{name: "a query on another connection inside", breaks: "one-connection", buy: inside(func(p purchase) (int, error) {
		if _, err := p.pool.Exec(p.ctx, "SELECT 1"); err != nil {
			return 0, err
		}
		return p.insertOn(p.tx)
	})},
	// Known from aws-powertools/powertools-lambda-python#8049 (expired, withdrawn twice).
	{name: "remembered for ten minutes", breaks: "remembered", buy: inserting(idem.WithTTL(10 * time.Minute))},
	// Known from stephenafamo/bob#661 (a COMMIT that had no effect).
	{name: "commits by hand", breaks: "transaction-kept", buy: inside(func(p purchase) (int, error) {
		id, err := p.insertOn(p.tx)
		return id, errors.Join(err, p.tx.Commit(p.ctx))
	})},
	{name: "commits in SQL", breaks: "transaction-kept", buy: inside(func(p purchase) (int, error) {
		id, err := p.insertOn(p.tx)
		p.tx.Exec(p.ctx, "COMMIT")
		return id, err
	})},
	// Known from erleans/pgo#131, lobu-ai/lobu#2461.
	{name: "ignores a statement that fails", breaks: "errors-returned", buy: inside(func(p purchase) (int, error) {
		id, err := p.insertOn(p.tx)
		p.tx.Exec(p.ctx, "INSERT INTO statistics VALUES (1)")
		return id, err
	})},
	{name: "an unknown outcome is treated as success", breaks: "answer-after-commit", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		_, err := value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), inserts(ctx, tenant, item)))
		if errors.Is(err, idem.ErrOutcomeUnknown) {
			err = nil
		}
		return "placed", err
	}},
	{name: "ignores a serialization failure", breaks: "errors-returned", buy: inside(func(p purchase) (int, error) {
		id, err := p.insertOn(p.tx)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "40001" {
			err = nil
		}
		return id, err
	})},
	// Known from lobu-ai/lobu#2461.
	{name: "joins a transaction and commits what failed", breaks: "answer-after-commit", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return nil, err
		}
		defer tx.Rollback(ctx)
		idem.DoTx(ctx, tx, tenant, orderKey, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (idem.Response, error) {
			_, err := insert(ctx, tx, tenant, item)
			return idem.Response{Status: 201}, err
		})
		tx.Commit(ctx)
		return "placed", nil
	}, change: func(s *idemtest.FuncSuite) { s.Other, s.Stranger = nil, nil }},
	{name: "never returns once a statement has failed", breaks: "returns", buy: func(ctx context.Context, pool *pgxpool.Pool, tenant, item string) (any, error) {
		v, err := value(idem.DoJSON(ctx, pool, tenant, orderKey, idem.HashBytes([]byte(item)), inserts(ctx, tenant, item), idem.WithRetries(0)))
		if err != nil && !errors.Is(err, idem.ErrMismatch) {
			<-make(chan bool)
		}
		return v, err
	}, change: func(s *idemtest.FuncSuite) { s.Patience = time.Second }},
}

// lossy places an order, and treats a lost connection as a failure.
func lossy(ctx context.Context, pool *pgxpool.Pool, tenant, key, item string) (any, error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(ctx)
	res, err := idem.DoTx(ctx, tx, tenant, key, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (idem.Response, error) {
		_, err := insert(ctx, tx, tenant, item)
		return idem.Response{Status: 201}, err
	})
	if err != nil {
		return nil, err
	}
	return res, tx.Commit(ctx)
}
