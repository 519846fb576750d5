package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// The examples need a database, so TestExamples runs them, and go test does not.
var (
	ctx  = context.Background()
	pool *pgxpool.Pool
)

type cart struct{ SKU, Card string }

var errCardDeclined = errors.New("the card is declined")

// charge asks the bank, which recognizes a key.
func charge(_ context.Context, key, card string) (string, error) {
	if card == "expired" {
		return "", operation.Final(errCardDeclined)
	}
	return "charge-1", nil
}

// A card is charged between two transactions. If it is declined, what was reserved is released.
func Example() {
	checkout := operation.Define("checkout", func(op *operation.Op, in cart) (idem.Response, error) {
		order, err := operation.Tx(op, "reserve", func(tx pgx.Tx) (id int, err error) {
			err = tx.QueryRow(ctx, "insert into orders (sku) values ($1) returning id", in.SKU).Scan(&id)
			return id, err
		}, operation.UndoTx(func(tx pgx.Tx, order int) error {
			_, err := tx.Exec(ctx, "delete from orders where id = $1", order)
			return err
		}))
		if err != nil {
			return idem.Response{}, err
		}
		receipt, err := operation.Call(op, "charge", operation.Keyed(23*time.Hour), func(ctx context.Context, key string) (string, error) {
			return charge(ctx, key, in.Card)
		})
		if errors.Is(err, errCardDeclined) {
			return idem.Response{}, idem.Reject(idem.Response{Status: 402, Body: []byte("declined")})
		}
		if err != nil {
			return idem.Response{}, err
		}
		_, err = operation.Tx(op, "confirm", func(tx pgx.Tx) (bool, error) {
			_, err := tx.Exec(ctx, "update orders set receipt = $2 where id = $1", order, receipt)
			return true, err
		})
		return idem.Response{Status: 201, Body: fmt.Appendf(nil, "order %d", order)}, err
	})

	hash := idem.HashBytes([]byte("teapot"))
	for _, in := range []cart{{"teapot", "valid"}, {"teapot", "valid"}, {"teapot", "expired"}} {
		res, err := checkout.Do(ctx, pool, "tenant-1/checkout", in.Card, hash, in)
		fmt.Println(res.Status, string(res.Body), res.Replayed, res.Rejected, err)
	}
	// Prints:
	// 201 order 1 false false <nil>
	// 201 order 1 true false <nil>
	// 402 declined false true <nil>
}

// An order is started together with its row, and waits until a person approves it.
func ExampleDefinition_Start() {
	order := operation.Define("order", func(op *operation.Op, sku string) (idem.Response, error) {
		by, err := operation.Await[string](op, "approved", 24*time.Hour)
		if errors.Is(err, operation.ErrTimeout) {
			return idem.Response{}, idem.Reject(idem.Response{Status: 408})
		}
		return idem.Response{Status: 201, Body: []byte(sku + ", approved by " + by)}, err
	})
	var id string
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		id, err = order.Start(ctx, tx, "tenant-1/order", "k", idem.HashBytes(), "teapot")
		return err
	})
	fmt.Println(err)

	running, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- operation.NewWorker(pool, operation.WorkerConfig{}, order).Run(running) }()

	fmt.Println(operation.Signal(ctx, pool, id, "approved", "Ada"))
	res, err := order.Do(ctx, pool, "tenant-1/order", "k", idem.HashBytes(), "teapot", idem.WithWait(time.Minute))
	fmt.Println(res.Status, string(res.Body), err)
	stop()
	fmt.Println(<-ended)
	// Prints:
	// <nil>
	// <nil>
	// 201 teapot, approved by Ada <nil>
	// <nil>
}

// A flight and a room are booked at the same time. If one of them is not available, the other is
// canceled.
func ExampleParallel() {
	errFull := errors.New("full")
	travel := operation.Define("travel", func(op *operation.Op, nights int) (idem.Response, error) {
		calls := operation.Parallel(op)
		air := operation.Go(calls, "air", operation.Keyed(23*time.Hour), func(ctx context.Context, key string) (string, error) {
			return "flight 7", nil
		}, operation.UndoCall(operation.Keyed(23*time.Hour), func(ctx context.Context, key, flight string) error {
			fmt.Println("canceled:", flight)
			return nil
		}))
		room := operation.Go(calls, "room", operation.Keyed(23*time.Hour), func(ctx context.Context, key string) (string, error) {
			if nights > 3 {
				return "", operation.Final(errFull)
			}
			return "room 12", nil
		})
		failed := calls.Wait()
		if errors.Is(failed, errFull) {
			return idem.Response{}, idem.Reject(idem.Response{Status: 409, Body: []byte("full")})
		}
		if failed != nil {
			return idem.Response{}, failed
		}
		flight, err := air.Value()
		bed, other := room.Value()
		return idem.Response{Status: 201, Body: []byte(flight + ", " + bed)}, errors.Join(err, other)
	})
	for i, nights := range []int{2, 5} {
		key := fmt.Sprint("travel ", i)
		res, err := travel.Do(ctx, pool, "tenant-1/travel", key, idem.HashBytes([]byte(key)), nights)
		fmt.Println(res.Status, string(res.Body), err)
	}
	// Prints:
	// 201 flight 7, room 12 <nil>
	// canceled: flight 7
	// 409 full <nil>
}

// An order is shipped by a child, on which a Worker works. The outcome of the child decides about
// the order.
func ExampleChild() {
	ship := operation.Define("ship", func(op *operation.Op, number int) (idem.Response, error) {
		if number > 1 {
			return idem.Response{}, idem.Reject(idem.Response{Status: 409, Body: []byte("no courier delivers there")})
		}
		return idem.Response{Status: 201, Body: fmt.Appendf(nil, "parcel of order %d", number)}, nil
	})
	order := operation.Define("order", func(op *operation.Op, number int) (idem.Response, error) {
		shipped, err := operation.Child(op, "ship", ship, number)
		var failed *operation.ChildError
		if errors.As(err, &failed) && failed.Rejected != nil {
			return idem.Response{}, idem.Reject(*failed.Rejected)
		}
		return shipped, err
	})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- operation.NewWorker(pool, operation.WorkerConfig{}, order, ship).Run(running) }()
	for number := 1; number <= 2; number++ {
		key := fmt.Sprint("order ", number)
		res, err := order.Do(ctx, pool, "tenant-1/order", key, idem.HashBytes([]byte(key)), number, idem.WithWait(time.Minute))
		fmt.Println(res.Status, string(res.Body), err)
	}
	stop()
	fmt.Println(<-ended)
	// Prints:
	// 201 parcel of order 1 <nil>
	// 409 no courier delivers there <nil>
	// <nil>
}

// A long call reports its progress with each page.
func ExamplePolicy_WithHeartbeat() {
	export := operation.Define("export", func(op *operation.Op, pages int) (idem.Response, error) {
		slow := operation.Keyed(23 * time.Hour).WithHeartbeat(time.Minute).WithAttemptTimeout(6 * time.Hour)
		done, err := operation.Call(op, "export", slow, func(ctx context.Context, key string) (int, error) {
			for page := range pages {
				if err := ctx.Err(); err != nil {
					return page, operation.Unknown(err)
				}
				operation.Beat(ctx) // the other side has taken this page under key
			}
			return pages, nil
		})
		return idem.Response{Status: 201, Body: fmt.Appendf(nil, "%d pages", done)}, err
	})
	res, err := export.Do(ctx, pool, "tenant-1/export", "k", idem.HashBytes(), 3)
	fmt.Println(res.Status, string(res.Body), err)
	// Prints:
	// 201 3 pages <nil>
}

func TestExamples(t *testing.T) {
	examples.Run(t, map[string]func(){"": Example, "Definition_Start": ExampleDefinition_Start, "Parallel": ExampleParallel, "Child": ExampleChild, "Policy_WithHeartbeat": ExamplePolicy_WithHeartbeat}, func(t *testing.T, _ string) {
		pool = pgtest.New(t)
		if _, err := pool.Exec(t.Context(), "create table orders (id int generated always as identity, sku text, receipt text)"); err != nil {
			t.Fatal(err)
		}
	})
}
