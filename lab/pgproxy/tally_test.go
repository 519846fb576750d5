package pgproxy_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgproxy"
)

func query(p *pgconn.Pipeline, sql string) { p.SendQueryParams(sql, nil, nil, nil, nil) }

// readResults reads the results of n requests. A Sync counts as one.
func readResults(p *pgconn.Pipeline, n int) error {
	for range n {
		result, err := p.GetResults()
		if rows, ok := result.(*pgconn.ResultReader); ok && err == nil {
			_, err = rows.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestTally_CountsOnlyRequestsWithAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	p := start(t)
	ctx := within(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	for _, step := range []struct {
		name string
		do   func() error
		want pgproxy.Tally
	}{
		{"connecting", func() error { return nil }, pgproxy.Tally{}},
		{"ping", func() error { return conn.Ping(ctx) }, pgproxy.Tally{Turns: 1}},
		{"listen", func() error { _, err := conn.Exec(ctx, w.sql("listen %s")); return err }, pgproxy.Tally{Turns: 1}},
		{"notification", func() error {
			w.exec("notify %s")
			_, err := conn.WaitForNotification(ctx)
			return err
		}, pgproxy.Tally{}},
		{"copy in", func() error {
			_, err := conn.PgConn().CopyFrom(ctx, strings.NewReader("1\n2\n"), w.sql("copy %s (id) from stdin"))
			return err
		}, pgproxy.Tally{Turns: 1}},
		{"copy out", func() error {
			_, err := conn.PgConn().CopyTo(ctx, new(bytes.Buffer), w.sql("copy %s to stdout"))
			return err
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

// The counts stay correct in a long session with every kind of request, including failures.
func TestTally_IsExactInALongSession(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	p := start(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	kinds := conversation(within(t), w, conn)
	var want pgproxy.Tally
	for i := range 300 {
		kind := kinds[random.IntN(len(kinds))]
		if err := kind.do(); (err != nil) != kind.fails {
			t.Fatalf("seed %d, step %d, %s: %v", seed, i, kind.name, err)
		}
		want.Turns += kind.turns
		if got := p.Tally(); got.Turns != want.Turns {
			t.Fatalf("seed %d, step %d, %s: %d turns, want %d", seed, i, kind.name, got.Turns, want.Turns)
		}
	}
}

type exchange struct {
	name  string
	turns int
	fails bool
	do    func() error
}

func conversation(ctx context.Context, w *witness, conn *pgx.Conn) []exchange {
	exec := func(sql string, args ...any) func() error {
		return func() error { _, err := conn.Exec(ctx, sql, args...); return err }
	}
	batch := func(sqls ...string) func() error {
		return func() error {
			b := &pgx.Batch{}
			for _, sql := range sqls {
				b.Queue(sql)
			}
			return conn.SendBatch(ctx, b).Close()
		}
	}
	copyIn := func(data string) func() error {
		return func() error {
			_, err := conn.PgConn().CopyFrom(ctx, strings.NewReader(data), w.sql("copy %s (id) from stdin"))
			return errors.Join(err, exec(w.sql("select 1 from %s"))())
		}
	}
	prepare := func(sql string) func() error {
		return func() error {
			_, err := conn.PgConn().Prepare(ctx, "", sql, nil)
			return err
		}
	}
	return []exchange{
		{"simple", 1, false, exec("select 1; select 2;")},
		{"simple, second fails", 1, true, exec("select 1; select 1/0; select 2")},
		{"empty", 1, false, exec("")},
		{"extended", 1, false, exec("select $1::int", 1)},
		{"extended, fails", 1, true, exec("select 1 / $1::int", 0)},
		{"extended, parse fails", 1, true, exec("selec $1", 0)},
		{"extended, empty", 1, false, exec("-- $1", pgx.QueryExecModeCacheDescribe)},
		{"prepare", 1, false, prepare("select 1")},
		{"prepare fails", 1, true, prepare("selec 1")},
		{"batch", 1, false, batch("select 1", "select 2", "select 3")},
		{"batch, first fails", 1, true, batch("select 1/0", "select 2", "select 3")},
		{"batch, last fails", 1, true, batch("select 1", "select 2", "select 1/0")},
		{"batch, parse fails", 1, true, batch("select 1", "selec 2", "select 3")},
		{"copy in", 2, false, copyIn("")},
		{"copy in fails", 2, true, copyIn("x\n")},
		{"copy of no table", 1, true, func() error {
			_, err := conn.PgConn().CopyFrom(ctx, strings.NewReader("1\n"), "copy no_such_table from stdin")
			return err
		}},
		{"copy out", 1, false, func() error {
			_, err := conn.PgConn().CopyTo(ctx, new(bytes.Buffer), w.sql("copy %s to stdout"))
			return err
		}},
		{"two syncs", 1, false, func() error {
			pipeline := conn.PgConn().StartPipeline(ctx)
			query(pipeline, "select 1")
			pipeline.SendPipelineSync()
			query(pipeline, "select 2")
			pipeline.SendPipelineSync()
			return errors.Join(pipeline.Flush(), pipeline.Close())
		}},
		{"flushes", 3, false, func() error {
			pipeline := conn.PgConn().StartPipeline(ctx)
			query(pipeline, "select 1")
			pipeline.SendFlushRequest()
			pipeline.SendFlushRequest() // nothing to flush
			err := errors.Join(pipeline.Flush(), readResults(pipeline, 1))
			query(pipeline, "select 2")
			pipeline.SendFlushRequest()
			return errors.Join(err, pipeline.Flush(), readResults(pipeline, 1), pipeline.Sync(), pipeline.Close())
		}},
		{"error in front of the second sync", 1, true, func() error {
			pipeline := conn.PgConn().StartPipeline(ctx)
			query(pipeline, "select 1/0")
			query(pipeline, "select 1")
			pipeline.SendFlushRequest()
			pipeline.SendPipelineSync()
			query(pipeline, "select 2")
			pipeline.SendPipelineSync()
			return errors.Join(pipeline.Flush(), pipeline.Close())
		}},
	}
}
