package promises_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func withMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode }
}

// hostile is text that breaks out of incomplete quoting.
const hostile = `'; drop table idem.records; -- $1 $2 \' "\x00" ` + "`$$" + ` %s é😀`

func TestEveryExecModeKeepsThePromises(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			checkPromises(t, newLedger(t, withMode(mode)))
		})
	}
}

// Settings of the session change the text form of values. Records are still read back as they were
// written.
func TestSessionSettingsDoNotChangeWhatIsReplayed(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			checkPromises(t, newLedger(t, withMode(mode), func(config *pgxpool.Config) {
				for name, value := range map[string]string{
					"TimeZone": "Pacific/Chatham", "DateStyle": "ISO, DMY", "IntervalStyle": "sql_standard",
					"extra_float_digits": "-15", "search_path": "nowhere",
				} {
					config.ConnConfig.RuntimeParams[name] = value
				}
				config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
					_, err := conn.Exec(ctx, "create schema if not exists nowhere")
					return err
				}
			}))
		})
	}
}

// checkPromises checks the main guarantees in one connection mode.
func checkPromises(t *testing.T, l *ledger) {
	ctx := context.Background()
	stored := idem.Response{
		Status: -7,
		Header: map[string][]string{"Link": {"<a>; rel=\"x\"", "b, c"}, "X-" + hostile: {hostile, ""}},
		Body:   append([]byte(hostile), 0, 1, 0xff, '\\', '\''),
	}
	fn := func(tx pgx.Tx) (idem.Response, error) {
		if _, err := l.charge(hostile)(tx); err != nil {
			return idem.Response{}, err
		}
		return stored, nil
	}
	first, err := idemDo(ctx, l.pool, scope, hostile, hashA, fn)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stored, first.Response); diff != "" {
		t.Error(diff)
	}
	second, err := idemDo(ctx, l.pool, scope, hostile, hashA, fn)
	first.Replayed = true
	if diff := cmp.Diff(first, second); err != nil || diff != "" {
		t.Errorf("err = %v\n%s", err, diff)
	}
	l.wantOnce(hostile)
	if age := time.Since(first.CreatedAt); age < -time.Minute || age > time.Minute {
		t.Errorf("CreatedAt is %v ago", age)
	}

	if _, err := idemDo(ctx, l.pool, scope, hostile, hashB, fn); !errors.Is(err, idem.ErrMismatch) {
		t.Errorf("mismatch: %v", err)
	}
	rejected, err := idemDo(ctx, l.pool, scope, "rejected", hashA, func(tx pgx.Tx) (idem.Response, error) {
		_, err := l.charge("rejected")(tx)
		return idem.Response{}, errors.Join(err, idem.Reject(idem.Response{Status: 402}))
	})
	if err != nil || !rejected.Rejected || l.entries("rejected") != 0 {
		t.Errorf("rejected = %+v, %v", rejected, err)
	}
	failed := func(tx pgx.Tx) (idem.Response, error) { l.charge("failed")(tx); return idem.Response{}, errBusiness }
	if _, err := idemDo(ctx, l.pool, scope, "failed", hashA, failed); !errors.Is(err, errBusiness) {
		t.Errorf("failed: %v", err)
	}
	l.wantNone("failed")
	checkJoined(t, l)
}

func checkJoined(t *testing.T, l *ledger) {
	ctx := context.Background()
	err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		for range 2 {
			if _, err := idem.DoTx(ctx, tx, scope, "joined", hashA, l.charge("joined")); err != nil {
				return err
			}
		}
		_, err := idem.DoTx(ctx, tx, scope, "failed", hashA, func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(ctx, "select 1/0")
			return idem.Response{}, err
		})
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "22012" {
			t.Errorf("err = %v", err)
		}
		_, err = idem.DoTx(ctx, tx, scope, "rejected too", hashA, func(tx pgx.Tx) (idem.Response, error) {
			l.charge("rejected too")(tx)
			return idem.Response{}, idem.Reject(idem.Response{Status: 402})
		})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	l.wantOnce("joined")
	l.wantNone("failed")
	if l.entries("rejected too") != 0 || l.records("rejected too") != 1 {
		t.Error("the rejection was not recorded without its effect")
	}
}

// A prepared statement that was discarded, or that no longer fits the table, costs a new connection
// and no error.
func TestStaleStatementsAreReplacedUnnoticed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for i, spoil := range []string{
		"deallocate all",
		"discard all",
		"alter table idem.records alter column status type bigint",
	} {
		warm, next := fmt.Sprint("warm", i), fmt.Sprint("next", i)
		if _, err := idemDo(ctx, l.pool, scope, warm, hashA, l.charge(warm)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.pool.Exec(ctx, spoil); err != nil {
			t.Fatal(err)
		}
		if _, err := idemDo(ctx, l.pool, scope, next, hashA, l.charge(next)); err != nil {
			t.Fatalf("%s: %v", spoil, err)
		}
		l.wantOnce(warm)
		l.wantOnce(next)
	}
}

func TestEveryExecModeWorksBehindPgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	dsn := pgtest.PgBouncer(t, pgtest.DSN(t))
	for _, mode := range pgtest.ModesBehindPgBouncer(t) {
		l := ledgerOn(t, pgtest.Open(t, dsn, withMode(mode)))
		if _, err := l.pool.Exec(context.Background(), "truncate ledger, idem.records"); err != nil {
			t.Fatal(err)
		}
		checkPromises(t, l)
		if t.Failed() {
			t.Fatalf("in mode %v", mode)
		}
	}
}
