package bad

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

func step(op *operation.Op, name string) error {
	_, err := operation.Tx(op, name, func(tx pgx.Tx) (int, error) { return 1, nil })
	return err
}

var decidesByTheTime = operation.Define("by the time", func(op *operation.Op, in time.Time) (idem.Response, error) {
	if time.Now().After(in) { // want idemreplay
		return created, step(op, "late")
	}
	return created, step(op, "on time")
})

var decidesByChance = operation.Define("by chance", func(op *operation.Op, in string) (idem.Response, error) {
	if rand.IntN(2) == 0 { // want idemreplay
		return created, step(op, "bank a")
	}
	return created, step(op, "bank b")
})

var namesAStepByTheTime = operation.Define("name by the time", func(op *operation.Op, in string) (idem.Response, error) {
	return created, step(op, fmt.Sprint("charge ", time.Now().Unix())) // want idemreplay
})

var stepsOfAMap = operation.Define("a map", func(op *operation.Op, in map[string]int) (idem.Response, error) {
	for item := range in { // want idemreplay
		if err := step(op, item); err != nil {
			return idem.Response{}, err
		}
	}
	return created, nil
})

var idOutsideOfAStep = operation.Define("an id", func(op *operation.Op, in string) (idem.Response, error) {
	id := uuid.NewString() // want idemreplay
	_, err := operation.Tx(op, "order", func(tx pgx.Tx) (string, error) {
		_, err := tx.Exec(op.Context(), "INSERT INTO orders (id) VALUES ($1)", id)
		return id, err
	})
	return created, err
})

var stepsOfGoroutines = operation.Define("goroutines", func(op *operation.Op, in []string) (idem.Response, error) {
	for _, item := range in {
		go func() { _ = step(op, item) }() // want idemreplay
	}
	return created, nil
})

var helperThatDecides = operation.Define("a helper", func(op *operation.Op, in string) (idem.Response, error) {
	return created, pay(op)
})

func pay(op *operation.Op) error {
	if time.Now().Weekday() == time.Sunday { // want idemreplay
		return nil
	}
	return step(op, "pay")
}

var givesUpByTheTime = operation.Define("gives up", func(op *operation.Op, item string) (idem.Response, error) {
	start := time.Now() // want idemreplay
	defer func() { slog.Info("done", "took", time.Since(start)) }()
	if time.Since(start) > time.Second { // want idemreplay
		return idem.Response{}, context.DeadlineExceeded
	}
	return created, step(op, item)
})

var answersTheTime = operation.Define("answers", func(op *operation.Op, item string) (r idem.Response, err error) {
	start := time.Now()                                            // want idemreplay
	defer func() { r.Body = []byte(time.Since(start).String()) }() // want idemreplay
	return created, step(op, item)
})

var stepsOfTheKeysOfAMap = operation.Define("keys of a map", func(op *operation.Op, in map[string]int) (idem.Response, error) {
	for item := range maps.Keys(in) { // want idemreplay
		if err := step(op, item); err != nil {
			return idem.Response{}, err
		}
	}
	return created, nil
})

var setsAVariableInAStep = operation.Define("a variable", func(op *operation.Op, in string) (idem.Response, error) {
	var fee int
	if err := operation.Exec(op, "order", func(tx pgx.Tx) error {
		fee = 5 // want idemreplay
		_, err := tx.Exec(op.Context(), "INSERT INTO orders (id) VALUES ($1)", in)
		return err
	}); err != nil {
		return idem.Response{}, err
	}
	return idem.Response{Status: 201, Body: fmt.Append(nil, fee)}, nil
})

var scansInAStep = operation.Define("a scan", func(op *operation.Op, in string) (idem.Response, error) {
	var id string
	err := operation.Exec(op, "order", func(tx pgx.Tx) error {
		return tx.QueryRow(op.Context(), "INSERT INTO orders DEFAULT VALUES RETURNING id").Scan(&id) // want idemreplay
	})
	return idem.Response{Status: 201, Body: []byte(id)}, err
})

var readsAVariableInAnUndo = operation.Define("a variable of an undo", func(op *operation.Op, in string) (idem.Response, error) {
	var id string
	err := operation.Exec(op, "order", func(tx pgx.Tx) error {
		id = in // want idemreplay
		return nil
	}, operation.UndoTx(func(tx pgx.Tx, _ operation.None) error {
		_, err := tx.Exec(op.Context(), "DELETE FROM orders WHERE id = $1", id)
		return err
	}))
	return created, err
})
