package pgproxy_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgproxy"
)

var breakages = []pgproxy.Action{pgproxy.Reset, pgproxy.Hangup, pgproxy.BlackHole}

// broken is a transaction whose COMMIT, together with an insert, runs into a trap.
type broken struct {
	*witness
	proxy *pgproxy.Proxy
	conn  *pgx.Conn
	link  *pgproxy.Conn
}

func begin(t *testing.T, mode pgx.QueryExecMode) *broken {
	t.Helper()
	b := &broken{witness: newWitness(t), proxy: start(t)}
	b.conn = connect(t, b.proxy.DSN(), mode)
	b.link = only(t, b.proxy)
	mustExec(t, b.conn, "begin")
	mustExec(t, b.conn, b.sql("insert into %s values ($1)"), 1)
	return b
}

// commit draws from the sequence and commits in one pipeline. If the client gets no answer, it
// gives up when the trap has sprung. pgx then sends a CancelRequest, which must not disturb the
// server.
func (b *broken) commit(trap *pgproxy.Trap) (pgproxy.Event, error) {
	b.t.Helper()
	b.proxy.Refuse(pgproxy.Reset)
	ctx, giveUp := context.WithCancel(within(b.t))
	defer giveUp()
	done := inBackground(func() error {
		batch := &pgx.Batch{}
		batch.Queue(b.sql("select nextval('%s_seq')"))
		batch.Queue("commit")
		return b.conn.SendBatch(ctx, batch).Close()
	})
	event := receive(b.t, trap.Fired(), "the trap to spring")
	if trap.Count() != 1 {
		b.t.Errorf("the trap has sprung %d times", trap.Count())
	}
	giveUp()
	return event, receive(b.t, done, "the client to notice")
}

func inEveryWay(t *testing.T, test func(t *testing.T, mode pgx.QueryExecMode, how pgproxy.Action)) {
	database(t)
	inEveryMode(t, func(t *testing.T, mode pgx.QueryExecMode) {
		for _, how := range breakages {
			t.Run(how.String(), func(t *testing.T) {
				t.Parallel()
				test(t, mode, how)
			})
		}
	})
}

func TestLostAnswerToCommit(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, mode pgx.QueryExecMode, how pgproxy.Action) {
		b := begin(t, mode)
		event, err := b.commit(b.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), how))
		if b.rows() != 1 {
			t.Error("the commit was not executed when the trap had sprung")
		}
		if !isLost(err) {
			t.Errorf("the client got %v", err)
		}
		if event.Tag != "COMMIT" || event.SQL != "commit" || event.Conn != b.link || event.Stage != pgproxy.Answered {
			t.Errorf("the trap reported %+v", event)
		}
	})
}

func TestAnswersInFrontOfALostOneArrive(t *testing.T) {
	t.Parallel()
	p := start(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	p.Arm(pgproxy.AfterAnswer(pgproxy.Contains("second")), pgproxy.Reset)
	batch := &pgx.Batch{}
	for _, sql := range []string{"select 'first'", "select 'second' from generate_series(1, 100000)", "select 'third'"} {
		batch.Queue(sql)
	}
	results := conn.SendBatch(within(t), batch)
	var first string
	if err := results.QueryRow().Scan(&first); err != nil || first != "first" {
		t.Errorf("got %q, %v", first, err)
	}
	rows, err := results.Query()
	if err == nil && rows.Next() {
		t.Error("got a row of the lost answer")
	}
	if err := results.Close(); !isLost(err) {
		t.Errorf("closing: %v", err)
	}
}

func TestTagTellsACommitFromARollback(t *testing.T) {
	t.Parallel()
	b := begin(t, pgx.QueryExecModeExec)
	trap := b.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
	if _, err := b.conn.Exec(within(t), "select 1/0"); err == nil {
		t.Fatal("no error")
	}
	if tag := mustExec(t, b.conn, "commit"); tag.String() != "ROLLBACK" {
		t.Fatalf("commit was answered by %s", tag)
	}
	if trap.Count() != 0 {
		t.Error("the trap has sprung at a rollback")
	}
	mustExec(t, b.conn, "begin")
	b.commit(trap)
}

func TestLostAnswerCanBeAnError(t *testing.T) {
	t.Parallel()
	b := begin(t, pgx.QueryExecModeExec)
	mustExec(t, b.conn, b.sql("insert into %s values (2, 7), (3, 7)"))
	event, err := b.commit(b.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit), pgproxy.Reset))
	if event.Code != "23505" || event.Tag != "" {
		t.Errorf("the trap reported tag %q, code %q", event.Tag, event.Code)
	}
	if !isLost(err) {
		t.Errorf("the client got %v", err)
	}
	if b.rows() != 0 {
		t.Errorf("%d rows", b.rows())
	}
}

func TestCommitThatNeverArrives(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, mode pgx.QueryExecMode, how pgproxy.Action) {
		b := begin(t, mode)
		_, err := b.commit(b.proxy.Arm(pgproxy.Before(pgproxy.IsCommit), how))
		if !isLost(err) {
			t.Errorf("the client got %v", err)
		}
		b.link.Cut(pgproxy.Reset)
		receive(t, b.link.Done(), "the server to notice")
		drawn := 1
		if mode == pgx.QueryExecModeSimpleProtocol {
			drawn = 0 // the pipeline is one message, and the server executes all of it or nothing
		}
		if b.rows() != 0 || b.drawn() != drawn {
			t.Errorf("%d rows and %d drawn, want 0 and %d", b.rows(), b.drawn(), drawn)
		}
	})
}

func TestPipelineThatNeverArrives(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, mode pgx.QueryExecMode, how pgproxy.Action) {
		b := begin(t, mode)
		_, err := b.commit(b.proxy.Arm(pgproxy.BeforePipeline(pgproxy.IsCommit), how))
		if !isLost(err) {
			t.Errorf("the client got %v", err)
		}
		b.link.Cut(pgproxy.Reset)
		receive(t, b.link.Done(), "the server to notice")
		if b.rows() != 0 || b.drawn() != 0 {
			t.Errorf("%d rows and %d drawn, want none", b.rows(), b.drawn())
		}
	})
}

func TestCommitThatNobodyWaitedFor(t *testing.T) {
	t.Parallel()
	inEveryWay(t, func(t *testing.T, mode pgx.QueryExecMode, how pgproxy.Action) {
		b := begin(t, mode)
		_, err := b.commit(b.proxy.Arm(pgproxy.AfterForward(pgproxy.IsCommit), how))
		if !isLost(err) {
			t.Errorf("the client got %v", err)
		}
		b.link.Cut(pgproxy.Reset)
		receive(t, b.link.Done(), "the server to finish")
		if b.rows() != 1 || b.drawn() != 1 {
			t.Errorf("%d rows and %d drawn, want 1 and 1", b.rows(), b.drawn())
		}
	})
}

func TestCommitByPreparedStatementIsCaught(t *testing.T) {
	t.Parallel()
	b := begin(t, pgx.QueryExecModeExec)
	if _, err := b.conn.Prepare(within(t), "finish", "/* at last */ COMMIT"); err != nil {
		t.Fatal(err)
	}
	trap := b.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
	if _, err := b.conn.Exec(within(t), "finish"); !isLost(err) {
		t.Errorf("the client got %v", err)
	}
	receive(t, trap.Fired(), "the trap to spring")
	if b.rows() != 1 {
		t.Error("the commit was not executed")
	}
}

func TestAnyStatementCanBeLost(t *testing.T) {
	t.Parallel()
	w, p := newWitness(t), start(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeCacheStatement)
	link := only(t, p)
	trap := p.Arm(pgproxy.AfterAnswer(pgproxy.Contains("insert into")), pgproxy.Reset)
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue(w.sql("insert into %s values ($1) returning nextval('%[1]s_seq')"), 1)
	results := conn.SendBatch(within(t), batch)
	if tag, err := results.Exec(); err != nil || tag.String() != "BEGIN" {
		t.Errorf("begin: %s, %v", tag, err)
	}
	var drawn int
	if err := results.QueryRow().Scan(&drawn); !isLost(err) || drawn != 0 {
		t.Errorf("insert: %d, %v", drawn, err)
	}
	results.Close()
	if event := receive(t, trap.Fired(), "the trap to spring"); event.Tag != "INSERT 0 1" {
		t.Errorf("the trap reported %q", event.Tag)
	}
	receive(t, link.Done(), "the server to notice")
	if w.drawn() != 1 || w.rows() != 0 {
		t.Errorf("%d drawn and %d rows, want 1 and 0", w.drawn(), w.rows())
	}
}

func TestFrozenCommit(t *testing.T) {
	t.Parallel()
	database(t)
	for name, frozen := range map[string]struct {
		at   pgproxy.Point
		rows int
	}{
		"in front":     {pgproxy.Before(pgproxy.IsCommit), 0},
		"its pipeline": {pgproxy.BeforePipeline(pgproxy.IsCommit), 0},
		"its answer":   {pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inEveryMode(t, func(t *testing.T, mode pgx.QueryExecMode) {
				b := begin(t, mode)
				trap := b.proxy.Arm(frozen.at, pgproxy.Freeze)
				done := inBackground(func() error {
					batch := &pgx.Batch{}
					batch.Queue("select 1")
					batch.Queue("commit")
					return b.conn.SendBatch(within(t), batch).Close()
				})
				receive(t, trap.Fired(), "the trap to spring")
				if b.rows() != frozen.rows || len(done) != 0 {
					t.Errorf("%d rows while frozen, want %d; %d answers", b.rows(), frozen.rows, len(done))
				}
				b.link.Resume()
				if err := receive(t, done, "the commit"); err != nil {
					t.Error(err)
				}
				if b.rows() != 1 {
					t.Errorf("%d rows, want 1", b.rows())
				}
				if got := b.proxy.Tally(); got.Turns == 0 {
					t.Errorf("nothing was counted: %+v", got)
				}
			})
		})
	}
}

func TestCutAtEveryByteToTheClient(t *testing.T) {
	t.Parallel()
	p := start(t)
	question := simpleQuery("select 'abc'")
	var length int64
	for offset := int64(0); length == 0 || offset < length; offset++ {
		client := raw(t, p)
		conns := p.Conns()
		link := conns[len(conns)-1]
		base := link.Bytes(pgproxy.ToClient)
		if length == 0 {
			length = answerLength(t, client, question)
			offset--
			continue
		}
		how := []pgproxy.Action{pgproxy.Reset, pgproxy.Hangup}[offset%2]
		trap := p.Arm(pgproxy.AtByte(link, pgproxy.ToClient, base+offset), how)
		client.Write(question)
		got, err := io.ReadAll(client)
		if int64(len(got)) != offset || (how == pgproxy.Reset) != isReset(err) {
			t.Errorf("%s at byte %d: the client got %d bytes and %v", how, offset, len(got), err)
		}
		receive(t, trap.Fired(), "the trap to spring")
		client.Close()
		receive(t, link.Done(), "the end of the connection")
	}
}

func answerLength(t testing.TB, client net.Conn, question []byte) (length int64) {
	t.Helper()
	client.Write(question)
	header := make([]byte, 5)
	for header[0] != 'Z' {
		if _, err := io.ReadFull(client, header); err != nil {
			t.Fatal(err)
		}
		body := int64(binary.BigEndian.Uint32(header[1:])) - 4
		if _, err := io.CopyN(io.Discard, client, body); err != nil {
			t.Fatal(err)
		}
		length += 5 + body
	}
	return length
}

func TestCutAtEveryByteToTheServer(t *testing.T) {
	t.Parallel()
	server := newSink(t)
	p := startFor(t, server.dsn())
	question := simpleQuery("commit")
	for offset := range question {
		client := server.connect(t, p)
		trap := p.Arm(pgproxy.AtByte(nil, pgproxy.ToServer, int64(len(startupPacket)+offset)), pgproxy.Reset)
		client.Write(question)
		receive(t, trap.Fired(), "the trap to spring")
		if got := receive(t, server.received, "the end of the stream"); string(got) != string(question[:offset]) {
			t.Errorf("cut at byte %d: the server got %q", offset, got)
		}
		if _, err := io.ReadAll(client); !isReset(err) {
			t.Errorf("cut at byte %d: the client got %v", offset, err)
		}
	}
}

func TestResetTakesNothingBack(t *testing.T) {
	t.Parallel()
	p := start(t)
	client := raw(t, p)
	client.SetReadBuffer(64 << 10) // the rest has to wait in the proxy's send buffer
	link := only(t, p)
	before := link.Bytes(pgproxy.ToClient)
	trap := p.Arm(pgproxy.AfterAnswer(pgproxy.Contains("lost")), pgproxy.Reset)
	written := p.Next(pgproxy.Delivered, pgproxy.Contains("kept"))
	client.Write(simpleQuery("select repeat('x', 1000000) as kept; select 1 as lost"))
	receive(t, written, "the first answer to be written")
	got, err := io.Copy(io.Discard, client)
	receive(t, trap.Fired(), "the trap to spring")
	if sent := link.Bytes(pgproxy.ToClient) - before; got != sent || sent < 1_000_000 || !isReset(err) {
		t.Errorf("the client got %d of %d bytes and %v, want all and a reset", got, sent, err)
	}
}

func TestStreamFrozenAtAByteGoesOn(t *testing.T) {
	t.Parallel()
	p := start(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	link := only(t, p)
	trap := p.ArmEach(pgproxy.AtByte(link, pgproxy.ToClient, link.Bytes(pgproxy.ToClient)+7), pgproxy.Freeze)
	done := inBackground(func() error { _, err := conn.Exec(within(t), "select 1"); return err })
	receive(t, trap.Fired(), "the trap to spring")
	if len(done) != 0 {
		t.Error("answered while frozen")
	}
	link.Resume()
	if err := receive(t, done, "the answer"); err != nil {
		t.Error(err)
	}
	mustExec(t, conn, "select 2")
	if trap.Count() != 1 {
		t.Errorf("sprung %d times", trap.Count())
	}
}
