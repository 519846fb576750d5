package idem_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/pgtest"
)

func BenchmarkX(b *testing.B) {
	ctx := context.Background()
	pool := pgtest.New(b)
	pool.Exec(ctx, "create table o (id bigint generated always as identity primary key, k text)")
	resp := idem.Response{Status: 201, Body: make([]byte, 200)}
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			tx, _ := pool.Begin(ctx)
			tx.Exec(ctx, "insert into o (k) values ($1)", fmt.Sprint(i))
			if err := tx.Commit(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	n := 0
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			n++
			_, err := idem.Do(ctx, pool, "s", fmt.Sprint("key", n), idem.Hash{}, func(tx pgx.Tx) (idem.Response, error) {
				_, err := tx.Exec(ctx, "insert into o (k) values ($1)", fmt.Sprint(i))
				return resp, err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("replay", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			r, err := idem.Do(ctx, pool, "s", "key1", idem.Hash{}, func(tx pgx.Tx) (idem.Response, error) {
				panic("no")
			})
			if err != nil || !r.Replayed {
				b.Fatal(err)
			}
		}
	})
	b.Run("select", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			var body []byte
			if err := pool.QueryRow(ctx, "select body from idem.records where scope=$1 and key=$2", "s", "key1").Scan(&body); err != nil {
				b.Fatal(err)
			}
		}
	})
}
