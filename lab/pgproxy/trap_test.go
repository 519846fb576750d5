package pgproxy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestReplace_FailsAStatementThatWasExecuted(t *testing.T) {
	t.Parallel()
	inEveryMode(t, func(t *testing.T, mode pgx.QueryExecMode) {
		b := begin(t, mode)
		trap := b.proxy.Replace(pgproxy.IsCommit, "COMMIT", "40003")
		batch := &pgx.Batch{}
		batch.Queue("select 1")
		batch.Queue("commit")
		err := b.conn.SendBatch(within(t), batch).Close()
		if failure, ok := errors.AsType[*pgconn.PgError](err); !ok || failure.Code != "40003" {
			t.Errorf("the client got %v", err)
		}
		mustExec(t, b.conn, "select 1")
		if b.rows() != 1 || trap.Count() != 1 {
			t.Errorf("%d rows, replaced %d times", b.rows(), trap.Count())
		}
	})
}

func TestNewRewriting_ServerGetsTheNewText(t *testing.T) {
	t.Parallel()
	p, err := pgproxy.NewRewriting(pgtest.DSN(t), func(sql string) string { return strings.ReplaceAll(sql, "seven()", "7") })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, mode := range modes {
		var n int
		if err := connect(t, p.DSN(), mode).QueryRow(within(t), "select $1::int + seven()", 1).Scan(&n); err != nil || n != 8 {
			t.Errorf("%v: %d, %v", mode, n, err)
		}
	}
}
