package promises_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
)

func TestTamperingWithTheRecordInsideFnCommitsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for name, sql := range map[string]string{
		"delete":          "delete from idem.records",
		"truncate":        "truncate idem.records",
		"other operation": "update idem.records set execution_id = gen_random_uuid()",
		"other key":       "update idem.records set key = 'other'",
		"other scope":     "update idem.records set scope = 'other'",
	} {
		t.Run(name, func(t *testing.T) {
			made := l.pool.Stat().NewConnsCount()
			_, err := idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
				resp, err := l.charge(name)(tx)
				if err == nil {
					_, err = tx.Exec(ctx, sql)
				}
				return resp, err
			})
			if !errors.Is(err, idem.ErrTxEnded) {
				t.Errorf("err = %v, want ErrTxEnded", err)
			}
			l.wantNone(name)
			if n := l.count("select count(*) from idem.records"); n != 0 {
				t.Errorf("%d records are left", n)
			}
			l.wantSameConnections(made)
			if _, err := l.pool.Exec(ctx, "truncate idem.records"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTimeoutThatFnSetsCountsForTheRecordTooAndUndoesEverything(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	if _, err := l.pool.Exec(ctx, `
		create function dawdle() returns trigger language plpgsql as 'begin perform pg_sleep(60); return new; end';
		create trigger slow before update on idem.records for each row when (new.key = 'slow') execute function dawdle()`); err != nil {
		t.Fatal(err)
	}
	_, err := idemDo(ctx, l.pool, scope, "slow", hashA, func(tx pgx.Tx) (idem.Response, error) {
		resp, err := l.charge("slow")(tx)
		if err == nil {
			_, err = tx.Exec(ctx, "set local statement_timeout = '50ms'")
		}
		return resp, err
	})
	if pgErr, ok := err.(*pgconn.PgError); !ok || pgErr.Code != "57014" {
		t.Errorf("err = %v, want the server's 57014", err)
	}
	l.wantNone("slow")
	l.wantSameConnections(1)
	var timeout string
	if err := l.pool.QueryRow(ctx, "show statement_timeout").Scan(&timeout); err != nil || timeout != "0" {
		t.Errorf("statement_timeout stayed at %s, %v", timeout, err)
	}
	l.wantHealthy()
}

func TestSettingsThatFnMakesForItselfDoNotHarmTheRecord(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(1), withMode(mode))
			for _, setting := range []string{
				"set local statement_timeout = '10s'", "set local lock_timeout = '1ms'", "set local search_path = ''",
				"set local timezone = 'Asia/Kathmandu'", "set local default_transaction_read_only = on",
				"set local bytea_output = 'escape'", "set local intervalstyle = 'iso_8601'", "set constraints all immediate",
			} {
				stored := idem.Response{Status: 1, Header: map[string][]string{"é": {"ü"}}, Body: []byte("\x00\\'é\xff")}
				fn := func(tx pgx.Tx) (idem.Response, error) {
					_, err := l.charge(setting)(tx)
					if err == nil {
						_, err = tx.Exec(ctx, setting)
					}
					return stored, err
				}
				first, err := idemDo(ctx, l.pool, scope, setting, hashA, fn)
				if err != nil {
					t.Errorf("%s: %v", setting, err)
					continue
				}
				second, err := idemDo(ctx, l.pool, scope, setting, hashA, fn)
				first.Replayed = true
				if diff := cmp.Diff(first, second); err != nil || diff != "" {
					t.Errorf("%s: %v\n%s", setting, err, diff)
				}
				l.wantOnce(setting)
			}
		})
	}
}

// The completion overwrites these columns, so changes by fn have no effect.
func TestTamperingWithTheOutcomeInsideFnIsOverwritten(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for name, sql := range map[string]string{
		"complete":            "update idem.records set state = 'completed', status = 7, body = 'x', header = '{}', sealed_by = 'x', completed_at = now() where key = 'complete'",
		"update in savepoint": "savepoint s; update idem.records set expires_at = expires_at; release s",
	} {
		first, err := idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
			resp, err := l.charge(name)(tx)
			if err == nil {
				_, err = tx.Exec(ctx, sql)
			}
			return resp, err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		again, err := idemDo(ctx, l.pool, scope, name, hashA, l.charge(name))
		first.Replayed = true
		if diff := cmp.Diff(first, again); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		l.wantOnce(name)
	}
}

// idem does not compare these columns with those of the claim.
func TestTamperingWithHashOrCreatedAtInsideFnIsNotNoticed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		if _, err := tx.Exec(ctx, "update idem.records set hash = $1, created_at = 'epoch'", hashB[:]); err != nil {
			return ok, err
		}
		return l.charge("k")(tx)
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")); !errors.Is(err, idem.ErrMismatch) {
		t.Errorf("the old hash: %v", err)
	}
	if res, err := idemDo(ctx, l.pool, scope, "k", hashB, l.charge("k")); err != nil || res.CreatedAt.Unix() != 0 {
		t.Errorf("the new hash: %+v, %v", res, err)
	}
	l.wantOnce("k")
}

// The completion uses statements that the session has prepared, and a setting that identifies the
// claim.
func TestFnThatDiscardsWhatTheSessionHoldsCommitsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, discard := range []string{"deallocate all", "discard all", "reset all"} {
		for name, outer := range outers {
			t.Run(name+"/"+discard, func(t *testing.T) {
				t.Parallel()
				l := newLedger(t, maxConns(1))
				l.charged(ctx, "warm")
				_, err := outer(ctx, l, "k", func(tx pgx.Tx) (idem.Response, error) {
					resp, err := l.charge("k")(tx)
					if err == nil {
						_, err = tx.Exec(ctx, discard)
					}
					return resp, err
				})
				if err == nil {
					t.Error("success")
				}
				l.wantNone("k")
				l.wantHealthy()
			})
		}
	}
}
