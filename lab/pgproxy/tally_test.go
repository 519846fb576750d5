package pgproxy_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/idem-go/idem/lab/pgproxy"
)

// counted runs f twice, and returns the tally of the second run. In the first run pgx prepares its
// statements.
func counted(t *testing.T, p *pgproxy.Proxy, f func()) pgproxy.Tally {
	t.Helper()
	f()
	p.ResetTally()
	f()
	return p.Tally()
}

func TestTransactionCostsATurnForEachStatement(t *testing.T) {
	t.Parallel()
	database(t)
	inEveryMode(t, func(t *testing.T, mode pgx.QueryExecMode) {
		w, p, id := newWitness(t), start(t), 0
		conn := connect(t, p.DSN(), mode)
		got := counted(t, p, func() {
			id++
			if err := pgx.BeginFunc(within(t), conn, func(tx pgx.Tx) error {
				_, err := tx.Exec(within(t), w.sql("insert into %s values ($1)"), id)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		})
		want := pgproxy.Tally{Turns: 3, Syncs: 3, Statements: 3}
		if mode == pgx.QueryExecModeDescribeExec {
			want.Turns, want.Syncs = 4, 4 // this mode asks for the parameter types each time
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("begin, insert, commit (-want +got):\n%s", diff)
		}
	})
}

func TestPipelineCostsOneTurn(t *testing.T) {
	t.Parallel()
	database(t)
	inEveryMode(t, func(t *testing.T, mode pgx.QueryExecMode) {
		w, p, id := newWitness(t), start(t), 0
		conn := connect(t, p.DSN(), mode)
		got := counted(t, p, func() {
			id++
			batch := &pgx.Batch{}
			batch.BeginTx(pgx.TxOptions{})
			batch.Queue(w.sql("insert into %s values ($1)"), id)
			batch.Queue("select $1::int", id)
			batch.Queue("commit")
			if err := conn.SendBatch(within(t), batch).Close(); err != nil {
				t.Fatal(err)
			}
		})
		want := pgproxy.Tally{Turns: 1, Syncs: 1, Statements: 4}
		if mode == pgx.QueryExecModeDescribeExec {
			want.Turns, want.Syncs = 2, 2
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a batch of four (-want +got):\n%s", diff)
		}
		if w.rows() != 2 {
			t.Errorf("%d rows, want 2", w.rows())
		}
	})
}

// pipelined sends statements through a pipeline of pgconn. send decides where it syncs, flushes and
// waits.
func pipelined(t *testing.T, conn *pgx.Conn, send func(*pgconn.Pipeline)) {
	t.Helper()
	pipeline := conn.PgConn().StartPipeline(within(t))
	send(pipeline)
	if err := pipeline.Close(); err != nil {
		t.Fatal(err)
	}
}

func query(p *pgconn.Pipeline, sql string) { p.SendQueryParams(sql, nil, nil, nil, nil) }

// awaitResults reads the results of n requests. A Sync counts as one.
func awaitResults(t *testing.T, p *pgconn.Pipeline, n int) {
	t.Helper()
	for range n {
		result, err := p.GetResults()
		if rows, ok := result.(*pgconn.ResultReader); ok && err == nil {
			_, err = rows.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestTwoSyncsInOneGoAreOneTurn(t *testing.T) {
	t.Parallel()
	p := start(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	parameter := bytes.Repeat([]byte("x"), 7000)
	const rounds = 500 // often enough for the answer to the first Sync to overtake the second
	for range rounds {
		pipelined(t, conn, func(pipeline *pgconn.Pipeline) {
			query(pipeline, "select 1")
			pipeline.SendPipelineSync()
			for range 4 {
				pipeline.SendQueryParams("select $1::text", [][]byte{parameter}, nil, nil, nil)
			}
			pipeline.SendPipelineSync()
			if err := pipeline.Flush(); err != nil {
				t.Fatal(err)
			}
			awaitResults(t, pipeline, 7)
		})
	}
	want := pgproxy.Tally{Turns: rounds, Syncs: 2 * rounds, Statements: 5 * rounds}
	if diff := cmp.Diff(want, p.Tally()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTwoSyncsWithAWaitInBetweenAreTwoTurns(t *testing.T) {
	t.Parallel()
	p := start(t)
	pipelined(t, connect(t, p.DSN(), pgx.QueryExecModeExec), func(pipeline *pgconn.Pipeline) {
		for range 2 {
			query(pipeline, "select 1")
			if err := pipeline.Sync(); err != nil {
				t.Fatal(err)
			}
			awaitResults(t, pipeline, 2)
		}
	})
	if diff := cmp.Diff(pgproxy.Tally{Turns: 2, Syncs: 2, Statements: 2}, p.Tally()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSyncSentBeforeTheAnswerCouldArriveIsTheSameTurn(t *testing.T) {
	t.Parallel()
	p := start(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	// When the client writes the second Sync, the first answer has arrived at the proxy and is not
	// being forwarded yet.
	p.SetLatency(time.Hour, pgproxy.ToClient)
	answered := p.Next(pgproxy.Answered, pgproxy.Contains("first"))
	second := p.Next(pgproxy.Answered, pgproxy.Contains("second"))
	pipeline := conn.PgConn().StartPipeline(within(t))
	query(pipeline, "select 'first'")
	pipeline.Sync()
	receive(t, answered, "the first answer")
	query(pipeline, "select 'second'")
	pipeline.Sync()
	receive(t, second, "the second answer")
	if diff := cmp.Diff(pgproxy.Tally{Turns: 1, Syncs: 2, Statements: 2}, p.Tally()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.Cut(pgproxy.Reset)
}

func TestFlushThatIsWaitedForIsATurn(t *testing.T) {
	t.Parallel()
	p := start(t)
	pipelined(t, connect(t, p.DSN(), pgx.QueryExecModeExec), func(pipeline *pgconn.Pipeline) {
		pipeline.SendPrepare("s", "select 1", nil)
		pipeline.SendFlushRequest()
		pipeline.SendFlushRequest() // nothing to flush
		pipeline.Flush()
		awaitResults(t, pipeline, 1)
		query(pipeline, "select 2")
		pipeline.SendFlushRequest()
		pipeline.Flush()
		awaitResults(t, pipeline, 1)
		pipeline.Sync()
		awaitResults(t, pipeline, 1)
	})
	if diff := cmp.Diff(pgproxy.Tally{Turns: 3, Syncs: 1, Statements: 1}, p.Tally()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFlushThatIsAnsweredByAnErrorIsATurn(t *testing.T) {
	t.Parallel()
	p := start(t)
	pipelined(t, connect(t, p.DSN(), pgx.QueryExecModeExec), func(pipeline *pgconn.Pipeline) {
		query(pipeline, "select 1/0")
		query(pipeline, "select 1")
		pipeline.SendFlushRequest()
		pipeline.Flush()
		if _, err := pipeline.GetResults(); err == nil {
			t.Error("no error")
		}
		pipeline.Sync()
		awaitResults(t, pipeline, 1)
	})
	if diff := cmp.Diff(pgproxy.Tally{Turns: 2, Syncs: 1, Statements: 2}, p.Tally()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFlushOfNothingIsNoTurn(t *testing.T) {
	t.Parallel()
	p := start(t)
	client := raw(t, p)
	link := only(t, p)
	client.Write([]byte("H\x00\x00\x00\x04"))
	client.Close()
	receive(t, link.Done(), "the end of the connection")
	if diff := cmp.Diff(pgproxy.Tally{}, p.Tally()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOnlyQuestionsAreTurns(t *testing.T) {
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
		{"ping", func() error { return conn.Ping(ctx) }, pgproxy.Tally{Turns: 1, Syncs: 1, Statements: 1}},
		{"listen", func() error { _, err := conn.Exec(ctx, w.sql("listen %s")); return err }, pgproxy.Tally{Turns: 1, Syncs: 1, Statements: 1}},
		{"notification", func() error {
			w.exec("notify %s")
			_, err := conn.WaitForNotification(ctx)
			return err
		}, pgproxy.Tally{}},
		{"copy in", func() error {
			_, err := conn.PgConn().CopyFrom(ctx, strings.NewReader("1\n2\n"), w.sql("copy %s (id) from stdin"))
			return err
		}, pgproxy.Tally{Turns: 1, Syncs: 1, Statements: 1}},
		{"copy out", func() error {
			_, err := conn.PgConn().CopyTo(ctx, new(bytes.Buffer), w.sql("copy %s to stdout"))
			return err
		}, pgproxy.Tally{Turns: 1, Syncs: 1, Statements: 1}},
		{"large pipeline", func() error {
			batch := &pgx.Batch{}
			for range 8 {
				batch.Queue("select length($1::text)", strings.Repeat("x", 1<<20))
			}
			return conn.SendBatch(ctx, batch).Close()
		}, pgproxy.Tally{Turns: 1, Syncs: 1, Statements: 8}},
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

// As in libpq: COPY ignores the Sync behind Execute, and another one has to follow.
func TestCopyByTheExtendedProtocolKeepsTheCount(t *testing.T) {
	t.Parallel()
	database(t)
	for name, copied := range map[string]struct{ data, answers string }{
		"succeeds": {"1\n", "12GCZ"},
		"fails":    {"x\n", "12GEZ"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWitness(t), start(t)
			client := raw(t, p)
			frontend := pgproto3.NewFrontend(client, client)
			frontend.SendParse(&pgproto3.Parse{Query: w.sql("copy %s (id) from stdin")})
			frontend.SendBind(&pgproto3.Bind{})
			frontend.SendExecute(&pgproto3.Execute{})
			frontend.SendSync(&pgproto3.Sync{})
			answers := converse(t, frontend, 'G')
			frontend.Send(&pgproto3.CopyData{Data: []byte(copied.data)})
			frontend.Send(&pgproto3.CopyDone{})
			frontend.SendSync(&pgproto3.Sync{})
			answers += converse(t, frontend, 'Z')
			if answers != copied.answers {
				t.Errorf("answered by %q, want %q", answers, copied.answers)
			}
			frontend.SendQuery(&pgproto3.Query{String: "select 1"})
			converse(t, frontend, 'Z')
			if diff := cmp.Diff(pgproxy.Tally{Turns: 2, Syncs: 3, Statements: 2}, p.Tally()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// converse sends what is buffered, and returns the types of the answers up to last.
func converse(t testing.TB, frontend *pgproto3.Frontend, last byte) (kinds string) {
	t.Helper()
	if err := frontend.Flush(); err != nil {
		t.Fatal(err)
	}
	for len(kinds) == 0 || kinds[len(kinds)-1] != last {
		answer, err := frontend.Receive()
		if err != nil {
			t.Fatal(err)
		}
		m, err := answer.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		kinds += string(m[:1])
	}
	return kinds
}

func TestTalliesOfConnectionsAddUp(t *testing.T) {
	t.Parallel()
	p := start(t)
	one, other := connect(t, p.DSN(), pgx.QueryExecModeExec), connect(t, p.DSN(), pgx.QueryExecModeExec)
	mustExec(t, one, "select 1")
	mustExec(t, other, "select 1; select 2")
	mustExec(t, other, "select 3")
	conns := p.Conns()
	for i, want := range []pgproxy.Tally{{Turns: 1, Syncs: 1, Statements: 1}, {Turns: 2, Syncs: 2, Statements: 3}} {
		if diff := cmp.Diff(want, conns[i].Tally()); diff != "" {
			t.Errorf("connection %d (-want +got):\n%s", conns[i].ID(), diff)
		}
	}
	if diff := cmp.Diff(pgproxy.Tally{Turns: 3, Syncs: 3, Statements: 4}, p.Tally()); diff != "" {
		t.Errorf("proxy (-want +got):\n%s", diff)
	}
}

// The counts stay correct in a long session with every kind of request, including failures.
func TestCountStaysExactInALongConversation(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	p := start(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	kinds := conversation(within(t), w, conn)
	var want pgproxy.Tally
	for i := range 600 {
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
