// Package good has programs that keep the promises of idem. Each resembles a bad one.
package good

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/uptrace/bun"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemclient"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/outbox"
)

type db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Queries stands for the generated code of sqlc.
type Queries struct{ db db }

// New returns queries.
func New(db db) *Queries { return &Queries{db} }

// WithTx binds the queries to a transaction.
func (q *Queries) WithTx(tx pgx.Tx) *Queries { return &Queries{tx} }

// CreateOrder inserts an order.
func (q *Queries) CreateOrder(ctx context.Context, item string) error {
	_, err := q.db.Exec(ctx, "INSERT INTO orders (item) VALUES ($1)", item)
	return err
}

type service struct {
	pool    *pgxpool.Pool
	db      *sql.DB
	queries *Queries
	client  *http.Client
}

var created = idem.Response{Status: 201}

func (s *service) places(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES")
		return created, err
	})
}

func (s *service) placesByQueries(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		q := s.queries.WithTx(tx)
		if err := q.CreateOrder(ctx, "teapot"); err != nil {
			return idem.Response{}, err
		}
		return created, New(tx).CreateOrder(ctx, "kettle")
	})
}

func (s *service) placesByAHelper(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		return created, writeOrder(ctx, s.queries.WithTx(tx), tx)
	})
}

func writeOrder(ctx context.Context, q *Queries, tx pgx.Tx) error {
	if err := q.CreateOrder(ctx, "teapot"); err != nil {
		return err
	}
	_, err := tx.Conn().Exec(ctx, "SELECT 1")
	return err
}

func (s *service) readsBefore(ctx context.Context, scope, key string, hash idem.Hash) error {
	var limit int
	if err := s.pool.QueryRow(ctx, "SELECT most FROM limits").Scan(&limit); err != nil {
		return err
	}
	_, err := idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "UPDATE accounts SET n = $1", limit)
		return created, err
	})
	return err
}

func (s *service) callsBehind(ctx context.Context, scope, key string, hash idem.Hash) error {
	result, err := idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		return created, outbox.Add(ctx, tx, outbox.Message{Topic: "orders"})
	})
	if err != nil || result.Replayed {
		return err
	}
	resp, err := s.client.Get("https://cache.example/purge")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (s *service) keepsWhatIsToBeDoneBehind(ctx context.Context, js *nats.Conn, scope, key string, hash idem.Hash) error {
	var after []func()
	_, err := idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		after = append(after, func() { _ = js.Publish("seen", nil) })
		return created, nil
	})
	for _, f := range after {
		f()
	}
	return err
}

func (s *service) usesASavepoint(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		try, err := tx.Begin(ctx)
		if err != nil {
			return idem.Response{}, err
		}
		if _, err := try.Exec(ctx, "INSERT INTO customers DEFAULT VALUES"); err != nil {
			return created, try.Rollback(ctx)
		}
		return created, try.Commit(ctx)
	})
}

func (s *service) readsAllOfIt(ctx context.Context, scope, key string, hash idem.Hash) ([]int, error) {
	var ids []int
	_, err := idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (_ idem.Response, err error) {
		rows, err := tx.Query(ctx, "SELECT id FROM orders")
		if err != nil {
			return idem.Response{}, err
		}
		ids, err = pgx.CollectRows(rows, pgx.RowTo[int])
		return created, err
	})
	return ids, err
}

func (s *service) readsByCollect(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		rows, _ := tx.Query(ctx, "INSERT INTO orders DEFAULT VALUES RETURNING id") // the rows report its error
		_, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		return created, err
	})
}

func (s *service) placesByBun(ctx context.Context, orders *bun.DB, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idemsql.Do(ctx, s.db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
		_, err := orders.NewRaw("INSERT INTO orders DEFAULT VALUES").Conn(tx).Exec(ctx)
		return created, err
	})
}

func handlesByHeader(m *idemhttp.Middleware) http.Handler {
	return m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		_, err := tx.Exec(r.Context(), "INSERT INTO orders (tenant) VALUES ($1)", r.Header.Get("Tenant"))
		return err
	})
}

func (s *service) joins(ctx context.Context, tx pgx.Tx, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.DoTx(ctx, tx, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		return created, s.queries.WithTx(tx).CreateOrder(ctx, "teapot")
	})
}

func (s *service) placesByGorm(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idemsql.Do(ctx, s.db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
		orders, err := gorm.Open(postgres.New(postgres.Config{Conn: tx}), &gorm.Config{})
		if err != nil {
			return idem.Response{}, err
		}
		return created, orders.WithContext(ctx).Exec("INSERT INTO orders DEFAULT VALUES").Error
	})
}

func handles(w http.ResponseWriter, r *http.Request) {
	tx := idemhttp.Tx(r.Context())
	if _, err := tx.Exec(r.Context(), "INSERT INTO orders DEFAULT VALUES"); err != nil {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func oneKeyForAllAttempts(ctx context.Context, client *http.Client) error {
	key := uuid.NewString()
	for range 3 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example/charges", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", key)
		if resp, err := client.Do(req); err == nil {
			return resp.Body.Close()
		}
	}
	return nil
}

func oneKeyForEachOrder(ctx context.Context, client *http.Client, orders []string) error {
	for _, order := range orders {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example/charges", strings.NewReader(order))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", uuid.NewString())
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
	}
	return nil
}

type stored struct {
	key  string
	made time.Time
}

func keyThatIsStored(ctx context.Context, send func(context.Context) error) error {
	order := stored{key: idemclient.NewKey(), made: time.Now()}
	for range 3 {
		if err := send(idemclient.WithKeyMadeAt(ctx, order.key, order.made)); err == nil {
			return nil
		}
	}
	return nil
}

func keyOfADay(ctx context.Context, send func(context.Context) error, report string) error {
	return send(idemclient.WithKey(ctx, report+"/"+time.Now().Format(time.DateOnly)))
}

func keyOfWhatItSays(ctx context.Context, send func(context.Context) error, order string) error {
	for range 3 {
		if err := send(idemclient.WithKey(ctx, uuid.NewSHA1(uuid.NameSpaceOID, []byte(order)).String())); err == nil {
			return nil
		}
	}
	return nil
}

func (s *service) hasADeadline(scope, key string, hash idem.Hash) (idem.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) { return created, nil })
}

func (s *service) handlesAMessage(ctx context.Context, m inbox.Message) (inbox.Outcome, error) {
	return inbox.Handle(ctx, s.pool, "shipping", m, func(tx pgx.Tx) error {
		return s.queries.WithTx(tx).CreateOrder(ctx, m.ID)
	})
}

var checkout = operation.Define("checkout", func(op *operation.Op, in map[string]int) (idem.Response, error) {
	began := time.Time{}
	for _, item := range slices.Sorted(maps.Keys(in)) {
		at, err := operation.Tx(op, "reserve "+item, func(tx pgx.Tx) (time.Time, error) {
			_, err := tx.Exec(op.Context(), "UPDATE stock SET n = n - $1 WHERE item = $2", in[item], item)
			return time.Now(), err
		})
		if err != nil {
			return idem.Response{}, err
		}
		began = at
	}
	slog.Info("reserved", "took", time.Since(began))
	_, err := operation.Call(op, "charge", operation.Keyed(23*time.Hour), func(ctx context.Context, key string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example/charges", nil)
		if err != nil {
			return "", err
		}
		req.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		return resp.Status, resp.Body.Close()
	})
	return created, err
})

var picks = operation.Define("picks", func(op *operation.Op, in map[string]int) (idem.Response, error) {
	most := 0
	for _, n := range in {
		most = max(most, n)
	}
	_, err := operation.Tx(op, fmt.Sprint("most ", most), func(tx pgx.Tx) (int, error) { return cmp.Or(most, 1), nil })
	return created, err
})

func (s *service) namesTheSavepointTx(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		tx, err := tx.Begin(ctx)
		if err != nil {
			return idem.Response{}, err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO customers DEFAULT VALUES"); err != nil {
			return created, tx.Rollback(ctx)
		}
		return created, tx.Commit(ctx)
	})
}

func (s *service) storesItsKeyBefore(ctx context.Context, scope string, hash idem.Hash) error {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		key := uuid.NewString()
		if _, err := s.pool.Exec(ctx, "INSERT INTO intents (key) VALUES ($1)", key); err != nil {
			return err
		}
		if _, err := idem.Do(ctx, s.pool, scope, key, hash, func(pgx.Tx) (idem.Response, error) { return created, nil }); err != nil {
			return err
		}
	}
}

var measures = operation.Define("measures", func(op *operation.Op, items []string) (idem.Response, error) {
	start := time.Now()
	defer func() {
		took := time.Since(start)
		slog.Info("measured", "took", took)
	}()
	for _, item := range items {
		if err := operation.Exec(op, item, func(pgx.Tx) error { return nil }); err != nil {
			return idem.Response{}, err
		}
	}
	fmt.Println("it took", time.Since(start))
	return created, nil
})

var setsAVariableForItself = operation.Define("for itself", func(op *operation.Op, in string) (idem.Response, error) {
	var fee, rows int
	var err error
	for _, name := range []string{"one", "two"} {
		err = operation.Exec(op, name, func(tx pgx.Tx) error {
			rows = len(name)
			_, err := tx.Exec(op.Context(), "INSERT INTO orders (id, n) VALUES ($1, $2)", in, rows)
			return err
		})
		if err != nil {
			return idem.Response{}, err
		}
	}
	fee, err = operation.Tx(op, "fee", func(tx pgx.Tx) (int, error) {
		fee = 5
		rows = 1
		_, err := tx.Exec(op.Context(), "INSERT INTO fees (id, n) VALUES ($1, $2)", in, rows)
		return fee, err
	})
	return idem.Response{Status: 201, Body: fmt.Append(nil, fee)}, err
})

var collectsTheKeysOfAMap = operation.Define("collects", func(op *operation.Op, in map[string]int) (idem.Response, error) {
	sum := 0
	for n := range maps.Values(in) {
		sum += n
	}
	for _, item := range slices.Sorted(maps.Keys(in)) {
		if _, err := operation.Tx(op, item, func(pgx.Tx) (int, error) { return sum, nil }); err != nil {
			return idem.Response{}, err
		}
	}
	return created, nil
})

func (s *service) readsByAMethodValue(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	say := slog.Default().InfoContext
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		say(ctx, "places")
		_, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES")
		return created, err
	})
}

var undoesByTheClock = operation.Define("undoes", func(op *operation.Op, in string) (idem.Response, error) {
	refund := operation.UndoCall(operation.Keyed(time.Hour), func(ctx context.Context, key, charge string) error {
		slog.Info("refunds", "key", key, "charge", charge)
		if time.Now().Weekday() == time.Sunday {
			return context.DeadlineExceeded
		}
		return nil
	})
	_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(context.Context, string) (string, error) { return in, nil }, refund)
	if err != nil {
		return idem.Response{}, err
	}
	_, err = operation.Tx(op, "order", func(tx pgx.Tx) (time.Time, error) {
		now := time.Now()
		_, err := tx.Exec(op.Context(), "INSERT INTO orders (at) VALUES ($1)", now)
		return now, err
	}, operation.UndoTx(func(tx pgx.Tx, at time.Time) error {
		_, err := tx.Exec(op.Context(), "UPDATE orders SET canceled = $1 WHERE at = $2", time.Now(), at)
		return err
	}))
	return created, err
})
