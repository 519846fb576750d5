package idemsql_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/lab/pgtest"
)

// BenchmarkFirstRun measures a first run with one INSERT: by package idem, by OpenDB, and as a
// plain transaction of pgx and of database/sql. The four take turns, so that other load on the
// machine affects all of them. It reports medians.
func BenchmarkFirstRun(b *testing.B) {
	pool := pgtest.New(b)
	if _, err := pool.Exec(b.Context(), "create table ledger (key text not null)"); err != nil {
		b.Fatal(err)
	}
	db := idemsql.OpenDB(pool)
	defer db.Close()
	const insert = "insert into ledger (key) values ($1)"
	var dbKinds []benchmarkCase
	for name, run := range map[string]func(key string) error{
		"idem": func(key string) error {
			_, err := idem.Do(b.Context(), pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
				_, err := tx.Exec(b.Context(), insert, key)
				return ok, err
			})
			return err
		},
		"OpenDB": func(key string) error {
			_, err := idemsql.Do(b.Context(), db, scope, key, hashA, func(tx *sql.Tx) (idem.Response, error) {
				_, err := tx.ExecContext(b.Context(), insert, key)
				return ok, err
			})
			return err
		},
		"pgx": func(key string) error {
			return pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(b.Context(), insert, key)
				return err
			})
		},
		"plain": func(key string) error {
			tx, err := db.BeginTx(b.Context(), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(b.Context(), insert, key); err != nil {
				return err
			}
			return tx.Commit()
		},
	} {
		dbKinds = append(dbKinds, benchmarkCase{name: name, run: run})
	}
	for n := 0; b.Loop(); n++ {
		for i := range dbKinds {
			w := &dbKinds[(n+i)%len(dbKinds)]
			began := time.Now()
			if err := w.run(fmt.Sprint(w.name, n)); err != nil {
				b.Fatal(err)
			}
			w.took = append(w.took, time.Since(began))
		}
	}
	for _, w := range dbKinds {
		slices.Sort(w.took)
		b.ReportMetric(float64(w.took[len(w.took)/2].Microseconds()), "µs/"+w.name)
	}
}

// benchmarkCase is one way to do the write, with the durations measured.
type benchmarkCase struct {
	name string
	run  func(key string) error
	took []time.Duration
}
