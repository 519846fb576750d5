package promises_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

func containsAll(s string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// A fn that was too slow for the server would be too slow again, so it is not rerun.
func TestFnThatOutlastsATimeoutOfTheServerRunsOnceAndIsToldWhy(t *testing.T) {
	t.Parallel()
	for name, afterwards := range map[string]func(tx pgx.Tx) error{
		"COMMIT finds it out": func(pgx.Tx) error { return nil },
		"a statement of fn finds it out": func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), "select 1")
			return err
		},
		"a statement of fn finds it out, and fn ignores it": func(tx pgx.Tx) error {
			tx.Exec(context.Background(), "select 1")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			pool := pgtest.Open(t, l.pool.Config().ConnString())
			_, err := idemDo(context.Background(), pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
				resp, err := l.charge("k")(tx)
				if err != nil {
					return resp, err
				}
				pid := tx.Conn().PgConn().PID()
				if _, err := tx.Exec(context.Background(), "set local idle_in_transaction_session_timeout = '10ms'"); err != nil {
					return resp, err
				}
				awaitTrue(t, l.pool, fmt.Sprintf("select count(*) = 0 from pg_stat_activity where pid = %d", pid))
				return resp, afterwards(tx)
			})
			if err == nil || idem.Retryable(err) || errors.Is(err, idem.ErrOutcomeUnknown) {
				t.Errorf("err = %v", err)
			}
			if strings.HasPrefix(name, "COMMIT") && (!errors.Is(err, idem.ErrTxAborted) || !strings.Contains(err.Error(), "idle_in_transaction_session_timeout")) {
				t.Errorf("the reason is missing: %v", err)
			}
			if n := l.runs.Load(); n != 1 {
				t.Errorf("fn ran %d times", n)
			}
			l.wantNone("k")
		})
	}
}
