package idem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/migrations"
	"github.com/idem-go/idem/seal"
)

// The examples need a database, so go test does not run them as examples. TestExamples runs each on
// its own database and compares the output with the comment at its end.
var (
	ctx  = context.Background()
	pool *pgxpool.Pool
)

func ExampleDo() {
	scope := idem.Scope("tenant-1", "POST /orders")
	hash, _ := idem.HashJSON([]byte(`{"sku": "teapot"}`))
	order := func() (idem.Result, error) {
		return idem.Do(ctx, pool, scope, "7f3c9a52-0d1e", hash, func(tx pgx.Tx) (idem.Response, error) {
			var id int
			err := tx.QueryRow(ctx, "insert into orders (sku) values ('teapot') returning id").Scan(&id)
			if err != nil {
				return idem.Response{}, err // nothing is committed, and the key is free
			}
			return idem.Response{Status: 201, Body: fmt.Appendf(nil, `{"order":%d}`, id)}, nil
		})
	}
	for range 2 {
		res, err := order()
		fmt.Println(res.Status, string(res.Body), res.Replayed, err)
	}
	// Prints:
	// 201 {"order":1} false <nil>
	// 201 {"order":1} true <nil>
}

// A worker executes a job in the transaction that takes the job from the queue.
func ExampleDoTx() {
	hash := idem.HashBytes([]byte("order 7, shipped"))
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "delete from jobs where id = 7"); err != nil {
			return err
		}
		res, err := idem.DoTx(ctx, tx, "ship", "order 7", hash, func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(ctx, "insert into orders (sku) values ('teapot')")
			return idem.Response{Status: 204}, err
		})
		fmt.Println(res.Status, res.Replayed)
		return err
	})
	fmt.Println(err)
	// Prints:
	// 204 false
	// <nil>
}

func ExampleDoJSON() {
	type order struct {
		ID  int    `json:"id"`
		SKU string `json:"sku"`
	}
	hash := idem.HashBytes([]byte("teapot"))
	for range 2 {
		placed, res, err := idem.DoJSON(ctx, pool, "orders", "7f3c9a52-0d1e", hash, func(tx pgx.Tx) (order, error) {
			placed := order{SKU: "teapot"}
			err := tx.QueryRow(ctx, "insert into orders (sku) values ($1) returning id", placed.SKU).Scan(&placed.ID)
			return placed, err
		})
		fmt.Println(placed.ID, placed.SKU, res.Replayed, err)
	}
	// Prints:
	// 1 teapot false <nil>
	// 1 teapot true <nil>
}

// A rejection is recorded as the final answer, and the writes that led to it are undone.
func ExampleReject() {
	hash := idem.HashBytes([]byte("teapot"))
	for range 2 {
		res, err := idem.Do(ctx, pool, "orders", "7f3c9a52-0d1e", hash, func(tx pgx.Tx) (idem.Response, error) {
			if _, err := tx.Exec(ctx, "insert into orders (sku) values ('teapot')"); err != nil {
				return idem.Response{}, err
			}
			return idem.Response{}, idem.Reject(idem.Response{Status: 409, Body: []byte("out of stock")})
		})
		fmt.Println(res.Status, string(res.Body), res.Rejected, res.Replayed, err)
	}
	var orders int
	err := pool.QueryRow(ctx, "select count(*) from orders").Scan(&orders)
	fmt.Println(orders, "orders", err)
	// Prints:
	// 409 out of stock true false <nil>
	// 409 out of stock true true <nil>
	// 0 orders <nil>
}

// An event in the same transaction carries the id of the execution. The program that delivers the
// event to another system uses that id as the key of its request.
func ExampleExecutionID() {
	hash := idem.HashBytes([]byte("teapot"))
	res, err := idem.Do(ctx, pool, "orders", "7f3c9a52-0d1e", hash, func(tx pgx.Tx) (idem.Response, error) {
		id, _ := idem.ExecutionID(tx)
		_, err := tx.Exec(ctx, "insert into events (execution_id, kind) values ($1, 'order placed')", id)
		return idem.Response{Status: 201}, err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var kind string
	err = pool.QueryRow(ctx, "select kind from events where execution_id = $1", res.ExecutionID).Scan(&kind)
	fmt.Println(kind, err)
	// Prints: order placed <nil>
}

// A duplicate that does not wait gets an error while the first request is in progress.
func ExampleWithWait() {
	hash := idem.HashBytes([]byte("teapot"))
	_, err := idem.Do(ctx, pool, "orders", "7f3c9a52-0d1e", hash, func(tx pgx.Tx) (idem.Response, error) {
		// The same request arrives again while the first one is in progress.
		_, err := idem.Do(ctx, pool, "orders", "7f3c9a52-0d1e", hash, func(pgx.Tx) (idem.Response, error) {
			panic("not called")
		}, idem.WithWait(0))
		fmt.Println(errors.Is(err, idem.ErrInProgress), idem.Retryable(err))
		var busy *idem.InProgressError
		if errors.As(err, &busy) {
			fmt.Println("Retry-After:", busy.RetryAfter.Seconds())
		}
		return idem.Response{Status: 201}, nil
	})
	fmt.Println(err)
	// Prints:
	// true true
	// Retry-After: 1
	// <nil>
}

// This process encrypts the response. What the database stores cannot be read without the secret.
func ExampleWithSealer() {
	secret := bytes.Repeat([]byte{1}, seal.SecretSize) // usually from a secret manager, when the program starts
	sealing := idem.WithSealer(seal.New(seal.Keys{Primary: "2026-11", Secrets: map[string][]byte{"2026-11": secret}}))
	order := func(opts ...idem.Option) (idem.Result, error) {
		return idem.Do(ctx, pool, "orders", "7f3c9a52-0d1e", idem.HashBytes(), func(pgx.Tx) (idem.Response, error) {
			return idem.Response{Status: 201, Body: []byte("for the caller alone")}, nil
		}, opts...)
	}
	for range 2 {
		res, err := order(sealing)
		fmt.Println(string(res.Body), res.Replayed, err)
	}
	_, err := order() // a program without the Sealer
	fmt.Println(errors.Is(err, idem.ErrUnreadable))
	// Prints:
	// for the caller alone false <nil>
	// for the caller alone true <nil>
	// true
}

// The log has neither the scope, nor the whole key, nor the text of errors. The example omits the
// times, because they differ in each run.
func ExampleLogObserver() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case "time", "duration", "age", "execution_id":
			return slog.Attr{}
		}
		return a
	}}))
	options := []idem.Option{idem.WithName("place-order"), idem.WithObserver(idem.LogObserver(logger))}
	answer := func(pgx.Tx) (idem.Response, error) { return idem.Response{Status: 201}, nil }
	for _, wanted := range []string{"a teapot", "a teapot", "a samovar"} {
		_, _ = idem.Do(ctx, pool, "orders", "7f3c9a52-0d1e-4b6f", idem.HashBytes([]byte(wanted)), answer, options...)
	}
	// Prints:
	// level=INFO msg="idem: call replayed" name=place-order key=7f3c…(18) attempts=0
	// level=WARN msg="idem: call mismatch" name=place-order key=7f3c…(18) attempts=0 cause=mismatch
}

func Example_mismatch() {
	answer := func(pgx.Tx) (idem.Response, error) { return idem.Response{Status: 201}, nil }
	for _, amount := range []string{"5 EUR", "5000 EUR"} {
		_, err := idem.Do(ctx, pool, "payments", "7f3c9a52-0d1e-4b6f", idem.HashBytes([]byte(amount)), answer)
		var mismatch *idem.MismatchError
		if errors.As(err, &mismatch) {
			fmt.Println(mismatch.Key, "is taken")
		}
		fmt.Println(errors.Is(err, idem.ErrMismatch), idem.Retryable(err))
	}
	// Prints:
	// false false
	// 7f3c…(18) is taken
	// true false
}

// The migrations run beside those of the application, with their own version table.
func Example_migrate() {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close() // the pool stays open
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithTableName("public.idem_goose_version"),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := provider.Up(ctx); err != nil {
		fmt.Println(err)
		return
	}
	res, err := idem.Do(ctx, pool, "orders", "7f3c9a52-0d1e", idem.HashBytes(), func(pgx.Tx) (idem.Response, error) {
		return idem.Response{Status: 201}, nil
	})
	fmt.Println(res.Status, err)
	// Prints: 201 <nil>
}

func TestExamples(t *testing.T) {
	run := map[string]func(){
		"Do": ExampleDo, "DoTx": ExampleDoTx, "DoJSON": ExampleDoJSON, "Reject": ExampleReject,
		"ExecutionID": ExampleExecutionID, "WithWait": ExampleWithWait, "LogObserver": ExampleLogObserver,
		"WithSealer": ExampleWithSealer,
		"_mismatch":  Example_mismatch, "_migrate": Example_migrate,
	}
	examples.Run(t, run, func(t *testing.T, name string) {
		if name == "_migrate" {
			pool = pgtest.Open(t, pgtest.EmptyDSN(t))
			return
		}
		pool = pgtest.New(t)
		_, err := pool.Exec(t.Context(), `create table orders (id serial, sku text); create table jobs (id serial);
			create table events (execution_id uuid, kind text)`)
		if err != nil {
			t.Fatal(err)
		}
	})
}
