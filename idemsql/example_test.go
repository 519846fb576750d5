package idemsql_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
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
	db = idemsql.OpenDB(pgtest.New(t))
	defer db.Close()
	if _, err := db.Exec("create table orders (id integer generated always as identity primary key, sku text not null)"); err != nil {
		t.Fatal(err)
	}
	for name, example := range map[string]struct {
		run  func()
		want string
	}{
		"Do": {ExampleDo, "201 {\"order\":1} false <nil>\n201 {\"order\":1} true <nil>\n"},
		"Tx": {ExampleTx, "1 <nil>\n"},
	} {
		if got := printed(t, example.run); got != example.want {
			t.Errorf("%s prints %q, want %q", name, got, example.want)
		}
	}
}

// printed returns what f prints.
func printed(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	os.Stdout = w
	f()
	w.Close()
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
