package db

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestVerbsDoTheSameInEveryMode(t *testing.T) {
	t.Parallel()
	want := story(t, pgtest.DSN(t), pgx.QueryExecModeCacheDescribe)
	for name, mode := range map[string]pgx.QueryExecMode{
		"prepared": pgx.QueryExecModeCacheStatement, "exec": pgx.QueryExecModeExec, "simple protocol": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := story(t, pgtest.DSN(t), mode)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(Key{})); diff != "" {
				t.Errorf("(-described +%s):\n%s", name, diff)
			}
		})
	}
}

// story executes requests and returns them with their answers. Moments differ from run to run, so
// story replaces each by a number for the column of the table that it equals.
func story(t *testing.T, dsn string, mode pgx.QueryExecMode) []request {
	t.Helper()
	ctx := t.Context()
	pool := pgtest.Open(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
	scope, name := `s'co"p\e $1`, "k'\\ey\u2028 $2 '; drop table idem.records --"
	key := func(n byte, hash byte) *Key {
		executionID := pgtype.UUID{Bytes: [16]byte{n}, Valid: true}
		k := NewKey(scope, name, [32]byte{'\\', '\'', 0, hash}, executionID.String(), time.Duration(n)*time.Hour)
		return &k
	}
	first, second, third := key(1, 1), key(2, 1), key(3, 9)
	var told []request
	in := func(conn *pgx.Conn, requests ...request) {
		t.Helper()
		for _, r := range requests {
			if err := ask(ctx, conn, r); err != nil {
				t.Fatalf("%T: %v", r, err)
			}
			relate(ctx, t, conn, r)
			told = append(told, r)
		}
	}
	transaction := func(f func(conn *pgx.Conn)) {
		t.Helper()
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := roundtrip.Prepare(ctx, tx.Conn(), append(StatementsAtOnce, ClaimStatement)); err != nil {
				return err
			}
			f(tx.Conn())
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	body := make([]byte, 256)
	for i := range body {
		body[i] = byte(i)
	}
	transaction(func(conn *pgx.Conn) {
		in(conn, &Claim{Key: first}, &Load{Key: first}, &StillClaimed{Key: first}, &StillClaimed{Key: second})
		held, free := HolderOf(first.Lock), HolderOf(1)
		transaction(func(other *pgx.Conn) {
			in(other, &Claim{Key: second}, &held, &free, &Load{Key: second},
				&Claim{Key: second, AtOnce: true}, Calm{}, &Live{Scope: scope, Key: name})
		})
		in(conn, &Complete{Key: first, State: Completed, Status: -7, Header: []byte(`{"a'\\":["\u00fc"]}`), Body: body})
	})
	transaction(func(conn *pgx.Conn) {
		in(conn, &Load{Key: first}, &Load{Key: second}, &Load{Key: third}, &Live{Scope: scope, Key: name},
			&Live{Scope: name, Key: scope}, &TakeOver{Key: third}, Calm{})
	})
	if _, err := pool.Exec(ctx, "update idem.records set expires_at = clock_timestamp()"); err != nil {
		t.Fatal(err)
	}
	transaction(func(conn *pgx.Conn) {
		elsewhere := NewKey(scope, "another key", [32]byte{}, second.ExecutionID, time.Hour)
		in(conn, &Live{Scope: scope, Key: name}, &Load{Key: second}, &Claim{Key: &elsewhere, AtOnce: true},
			&TakeOver{Key: third}, &Load{Key: third}, &Load{Key: second},
			&Complete{Key: third, State: Failed, Status: 409, Body: body, SealedBy: `k'e"y\ $3`},
			Reclaim{ExecutionID: second.ExecutionID}, &Complete{Key: &elsewhere, State: Completed})
	})
	transaction(func(conn *pgx.Conn) { in(conn, &Load{Key: second}, &Load{Key: third}) })
	return told
}

// relate replaces each moment of an answer by the number of the column that it equals, as a second
// of the year 1970. It also checks whether lock_timeout has the session's own value after a
// request.
func relate(ctx context.Context, t *testing.T, conn *pgx.Conn, r request) {
	t.Helper()
	moments := func(key *Key, read ...*time.Time) {
		if key.ExecutionID == "" { // no record was found
			return
		}
		columns := make([]*time.Time, 3)
		err := conn.QueryRow(ctx, "select created_at, completed_at, expires_at from idem.records where execution_id = $1 and key = $2",
			key.ExecutionID, key.key).Scan(&columns[0], &columns[1], &columns[2])
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		for _, m := range read {
			if m.IsZero() {
				continue
			}
			for i, column := range columns {
				if column != nil && m.Equal(*column) {
					*m = time.Unix(int64(i+1), 0)
				}
			}
			if m.Year() != 1970 {
				t.Errorf("%T: %v is not one of %v", r, m, columns)
			}
		}
	}
	patient := func(want bool) {
		var is bool
		err := conn.QueryRow(ctx, "select setting = reset_val from pg_settings where name = 'lock_timeout'").Scan(&is)
		if err != nil || is != want {
			t.Errorf("after %+v lock_timeout is the session's own: %t, %v", r, is, err)
		}
	}
	switch r := r.(type) {
	case *Claim:
		moments(r.Key, &r.CreatedAt)
		patient(r.Claimed || !r.AtOnce)
	case *TakeOver:
		moments(r.Key, &r.CreatedAt)
		patient(r.Found)
	case Calm:
		patient(true)
	case *Complete:
		moments(r.Key, &r.CompletedAt, &r.ExpiresAt)
	case *Load:
		if r.Found && (r.Record.LoadedAt.IsZero() || r.Expired() == r.Record.LoadedAt.Before(r.Record.ExpiresAt)) {
			t.Errorf("loaded at %v, expires at %v, expired %t", r.Record.LoadedAt, r.Record.ExpiresAt, r.Expired())
		}
		r.Record.LoadedAt = time.Time{}
		stored := *r.Key
		stored.ExecutionID = r.Record.ExecutionID
		moments(&stored, &r.Record.CreatedAt, &r.Record.CompletedAt, &r.Record.ExpiresAt)
	case *Live:
		moments(&Key{ExecutionID: r.ExecutionID, key: r.Key}, &r.CreatedAt, &r.CompletedAt, &r.ExpiresAt)
	case *Holder:
		if r.Held == r.Since.IsZero() {
			t.Errorf("held %t since %v", r.Held, r.Since)
		}
		r.Since = time.Time{}
	}
}
