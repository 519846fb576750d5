package pgproxy_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgproxy"
)

func TestTally_CountsOnlyRequestsWithAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	p := w.proxy
	ctx := within(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	for _, step := range []struct {
		name string
		do   func() error
		want pgproxy.Tally
	}{
		{"connecting", func() error { return nil }, pgproxy.Tally{}},
		{"ping", func() error { return conn.Ping(ctx) }, pgproxy.Tally{Turns: 1}},
		{"listen", func() error { _, err := conn.Exec(ctx, "listen t"); return err }, pgproxy.Tally{Turns: 1}},
		{"notification", func() error {
			w.exec("notify t")
			_, err := conn.WaitForNotification(ctx)
			return err
		}, pgproxy.Tally{}},
		{"copy in", func() error {
			_, err := conn.PgConn().CopyFrom(ctx, strings.NewReader("1\n2\n"), "copy t (id) from stdin")
			return err
		}, pgproxy.Tally{Turns: 1}},
		{"copy out", func() error {
			_, err := conn.PgConn().CopyTo(ctx, new(bytes.Buffer), "copy t to stdout")
			return err
		}, pgproxy.Tally{Turns: 1}},
		{"flush, then sync", func() error {
			pipeline := conn.PgConn().StartPipeline(ctx)
			pipeline.SendQueryParams("select 1", nil, nil, nil, nil)
			pipeline.SendFlushRequest()
			pipeline.SendFlushRequest() // nothing to flush
			if err := pipeline.Flush(); err != nil {
				return err
			}
			result, err := pipeline.GetResults()
			if rows, ok := result.(*pgconn.ResultReader); ok && err == nil {
				_, err = rows.Close()
			}
			return errors.Join(err, pipeline.Sync(), pipeline.Close())
		}, pgproxy.Tally{Turns: 2}},
		{"batch with a failure", func() error {
			batch := &pgx.Batch{}
			batch.Queue("select 1/0")
			batch.Queue("select 2")
			if err := conn.SendBatch(ctx, batch).Close(); err == nil {
				return errors.New("the batch succeeded")
			}
			return nil
		}, pgproxy.Tally{Turns: 1}},
		{"large pipeline", func() error {
			batch := &pgx.Batch{}
			for range 8 {
				batch.Queue("select length($1::text)", strings.Repeat("x", 1<<20))
			}
			return conn.SendBatch(ctx, batch).Close()
		}, pgproxy.Tally{Turns: 1}},
		{"cancel request", func() error { return conn.PgConn().CancelRequest(ctx) }, pgproxy.Tally{}},
		{"terminate", func() error { return conn.Close(ctx) }, pgproxy.Tally{}},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, p.ResetTally()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}
