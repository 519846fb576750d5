package pgproxy_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/waiting"
)

var breakages = []pgproxy.Action{pgproxy.Reset, pgproxy.Hangup, pgproxy.BlackHole}

// broken is a transaction whose COMMIT, together with an insert, runs into a trap.
type broken struct {
	*witness
	conn *pgx.Conn
	link *pgproxy.Conn
}

func begin(t *testing.T, mode pgx.QueryExecMode) *broken {
	t.Helper()
	b := &broken{witness: newWitness(t)}
	b.conn = connect(t, b.proxy.DSN(), mode)
	b.link = only(t, b.proxy)
	mustExec(t, b.conn, "begin")
	mustExec(t, b.conn, "insert into t values ($1)", 1)
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
		batch.Queue("select nextval('t_seq')")
		batch.Queue("commit")
		return b.conn.SendBatch(ctx, batch).Close()
	})
	event := waiting.For(b.t, "the trap to spring", trap.Fired())
	if trap.Count() != 1 {
		b.t.Errorf("the trap has sprung %d times", trap.Count())
	}
	giveUp()
	return event, waiting.For(b.t, "the client to notice", done)
}

// A commit that breaks at a point has taken effect or not, whatever the timing, and the client gets
// no answer.
func TestTrap_BreaksACommitAtItsPoint(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		at          pgproxy.Point
		rows, drawn int
	}{
		"before it":           {pgproxy.Before(pgproxy.IsCommit), 0, 1},
		"before its pipeline": {pgproxy.BeforePipeline(pgproxy.IsCommit), 0, 0},
		"after forwarding it": {pgproxy.AfterForward(pgproxy.IsCommit), 1, 1},
		"after its answer":    {pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inEveryMode(t, func(t *testing.T, mode pgx.QueryExecMode) {
				for _, how := range breakages {
					b := begin(t, mode)
					event, err := b.commit(b.proxy.Arm(test.at, how))
					if !isLost(err) {
						t.Errorf("%v: the client got %v", how, err)
					}
					if event.SQL != "commit" || event.Conn != b.link {
						t.Errorf("%v: the trap reported %+v", how, event)
					}
					b.link.Cut(pgproxy.Reset)
					waiting.For(t, "the server to notice", b.link.Done())
					drawn := test.drawn
					if mode == pgx.QueryExecModeSimpleProtocol {
						drawn = test.rows // the pipeline is one message, and the server executes all of it or nothing
					}
					if b.rows() != test.rows || b.drawn() != drawn {
						t.Errorf("%v: %d rows and %d drawn, want %d and %d", how, b.rows(), b.drawn(), test.rows, drawn)
					}
				}
			})
		})
	}
}

func TestTrap_WithATagIgnoresARollback(t *testing.T) {
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

func TestTrap_FreezesAStreamAtAByte(t *testing.T) {
	t.Parallel()
	p := start(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	link := only(t, p)
	trap := p.ArmEach(pgproxy.AtByte(link, pgproxy.ToClient, link.Bytes(pgproxy.ToClient)+7), pgproxy.Freeze)
	done := inBackground(func() error { _, err := conn.Exec(within(t), "select 1"); return err })
	waiting.For(t, "the trap to spring", trap.Fired())
	if len(done) != 0 {
		t.Error("answered while frozen")
	}
	link.Resume()
	if err := waiting.For(t, "the answer", done); err != nil {
		t.Error(err)
	}
	mustExec(t, conn, "select 2")
	if trap.Count() != 1 {
		t.Errorf("sprung %d times", trap.Count())
	}
}
