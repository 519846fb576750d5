package idemsql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

// The examples need a database, so go test does not run them as examples: TestExamples does.
var (
	ctx = context.Background()
	db  *sql.DB
)

func ExampleDo() {
	scope := idem.Scope("tenant-1", "POST /orders")
	hash, _ := idem.HashJSON([]byte(`{"sku": "teapot"}`))
	place := func() (idem.Result, error) {
		return idemsql.Do(ctx, db, scope, "7f3c9a52-0d1e", hash, func(tx *sql.Tx) (idem.Response, error) {
			var id int
			err := tx.QueryRowContext(ctx, "insert into orders (sku) values ('teapot') returning id").Scan(&id)
			return idem.Response{Status: 201, Body: fmt.Appendf(nil, `{"order":%d}`, id)}, err
		})
	}
	for range 2 {
		result, err := place()
		fmt.Println(result.Status, string(result.Body), result.Replayed, err)
	}
	// Prints:
	// 201 {"order":1} false <nil>
	// 201 {"order":1} true <nil>
}

func ExampleTx() {
	scope := idem.Scope("tenant-1", "POST /orders")
	_, err := idemsql.Do(ctx, db, scope, "another key", idem.HashBytes(), func(tx *sql.Tx) (idem.Response, error) {
		own, err := idemsql.Tx(ctx, tx)
		if err != nil {
			return idem.Response{}, err
		}
		return idem.Response{Status: 202}, outbox.Add(ctx, own, outbox.Message{Topic: "orders", Payload: []byte("{}")})
	})
	var messages int
	db.QueryRow("select count(*) from idem.outbox").Scan(&messages)
	fmt.Println(messages, err)
	// Prints:
	// 1 <nil>
}

func TestExamples(t *testing.T) {
	examples.Run(t, map[string]func(){"Do": ExampleDo, "Tx": ExampleTx}, func(t *testing.T, _ string) {
		db = idemsql.OpenDB(pgtest.New(t))
		t.Cleanup(func() { db.Close() })
		if _, err := db.Exec("create table orders (id integer generated always as identity primary key, sku text not null)"); err != nil {
			t.Fatal(err)
		}
	})
}
