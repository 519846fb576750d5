package operation_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// Tx, Call, Tx as an operation, and by hand without a record: the cost of the record.
func BenchmarkTxCallTx(b *testing.B) {
	s := newShop(b)
	bank := func(context.Context, string) (int, error) { return 7, nil }
	d := operation.Define("bench", func(op *operation.Op, _ int) (idem.Response, error) {
		if _, err := operation.Tx(op, "reserve", write("reserve")); err != nil {
			return idem.Response{}, err
		}
		if _, err := operation.Call(op, "charge", operation.Keyed(time.Hour), bank); err != nil {
			return idem.Response{}, err
		}
		_, err := operation.Tx(op, "confirm", write("confirm"))
		return created, err
	})
	b.Run("operation", func(b *testing.B) {
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			if _, err := d.Do(b.Context(), s.pool, scope, fmt.Sprint("k", b.N, n), hashA, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("two Do", func(b *testing.B) {
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			for _, name := range []string{"reserve", "confirm"} {
				_, err := idem.Do(b.Context(), s.pool, name, fmt.Sprint("k", b.N, n), hashA, func(tx pgx.Tx) (idem.Response, error) {
					return created, writeUndo(name)(tx)
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		step := func(name string) {
			err := pgx.BeginFunc(b.Context(), s.pool, func(tx pgx.Tx) error { return writeUndo(name)(tx) })
			if err != nil {
				b.Fatal(err)
			}
		}
		for b.Loop() {
			step("reserve")
			_, _ = bank(b.Context(), "")
			step("confirm")
		}
	})
}
