package txn

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/lab/pgproxy"
)

func isUnknown(err error) bool {
	var unknown *UnknownError
	return errors.As(err, &unknown)
}

func TestCommitThatTheServerRefusesIsItsOrdinaryErrorAndNothingIsCommitted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	err := b.engine.Do(t.Context(), 3, func(tx pgx.Tx) (bool, error) {
		_, err := tx.Exec(t.Context(), "insert into made values ('k', 'twice'), ('k', 'twice')") // is checked by COMMIT
		return false, err
	})
	if !HasCode(err, "23505") || isUnknown(err) || Transient(err) {
		t.Errorf("the error is %v", err)
	}
	b.wantMade("k", 0)
	if err := b.engine.Do(t.Context(), 0, write("next", false, nil)); err != nil || b.engine.Pool.Stat().NewConnsCount() != 1 {
		t.Errorf("the connection was not used again: %v", err)
	}
}

func TestCommitAnsweredByRollbackIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{CommitQuery: "rollback"}, DefaultLimits)
	err := e.Do(t.Context(), 3, write("k", false, nil))
	if !errors.Is(err, ErrAborted) || !errors.Is(err, pgx.ErrTxCommitRollback) || isUnknown(err) {
		t.Errorf("the error is %v", err)
	}
	b.wantMade("k", 0)
}

// The same error, whether COMMIT has happened or not: the database alone can tell.
func TestCommitWithoutAnAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		point pgproxy.Point
		made  int
	}{
		"it never arrived": {pgproxy.BeforePipeline(pgproxy.IsCommit), 0},
		"it was done":      {pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), 1},
	} {
		for _, how := range []pgproxy.Action{pgproxy.Reset, pgproxy.Hangup} {
			t.Run(name+", "+how.String(), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				trap := b.proxy.Arm(test.point, how)
				err := b.engine.Do(t.Context(), 3, write("k", false, nil))
				await(t, "the trap", trap.Fired())
				if !isUnknown(err) || Rerunnable(err) {
					t.Errorf("the error is %v", err)
				}
				b.wantMade("k", test.made)
			})
		}
	}
}

// A session that the server ends may have committed before.
func TestCommitAnsweredByTheEndOfTheSessionIsUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{CommitQuery: "select pg_terminate_backend(pg_backend_pid())"}, DefaultLimits)
	if err := e.Do(t.Context(), 3, write("k", false, nil)); !isUnknown(err) || !HasCode(err, "57P01") {
		t.Errorf("the error is %v", err)
	}
}

// A server that is several, or a pooler, may lose sight of a COMMIT and stay there to say so.
func TestCommitOfWhichTheServerIsNotCertainIsUnknown(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{"40003": true, "XX000": true, "08007": true, "08006": true, "40001": false, "40002": false, "23505": false} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			e := b.withEngine(pgx.TxOptions{CommitQuery: "do $$ begin raise exception using errcode = '" + code + "'; end $$"}, DefaultLimits)
			if err := e.Do(t.Context(), 0, write("k", false, nil)); isUnknown(err) != want || !HasCode(err, code) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestOrdinaryErrorsAreRefusalsAndFatalOnesAreNot(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{context.Canceled, false},
		{&pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR"}, true},
		{&pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR"}, true},
		{&pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL"}, false},
		{&pgconn.PgError{Severity: "PANIK", SeverityUnlocalized: "PANIC"}, false},
		{&pgconn.PgError{Severity: "FATAL"}, false}, // as a pooler answers
		{&pgconn.PgError{Severity: "ERROR"}, true},
		{errors.Join(errBusiness, &pgconn.PgError{Severity: "ERROR"}), true},
	} {
		if got := refused(test.err); got != test.want {
			t.Errorf("refused(%#v) = %t", test.err, got)
		}
	}
}

func TestCommitIsNotSentOnceTheContextHasEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tx := b.open(b.engine, "k")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trap := b.proxy.Arm(pgproxy.Before(pgproxy.IsCommit), pgproxy.Reset)
	if err := tx.Commit(ctx); !errors.Is(err, context.Canceled) || isUnknown(err) {
		t.Errorf("the error is %v", err)
	}
	tx.Close()
	b.wantMade("k", 0)
	select {
	case <-trap.Fired():
		t.Error("COMMIT was sent")
	default:
	}
}

// frozenCommit sends a COMMIT, of whose answer nothing arrives until the event's connection is resumed.
func (b *bench) frozenCommit(ctx context.Context, e *Engine) (answer <-chan error, event pgproxy.Event) {
	b.t.Helper()
	tx := b.open(e, "k")
	trap := b.proxy.Arm(pgproxy.AfterForward(pgproxy.IsCommit), pgproxy.Freeze)
	answer = b.commit(ctx, tx)
	return answer, await(b.t, "the trap", trap.Fired())
}

func TestAnswerToCommitCountsAfterTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	answer, event := b.frozenCommit(ctx, b.withEngine(pgx.TxOptions{}, Limits{Acquire: limit, Rollback: limit, Commit: time.Hour}))
	cancel()
	event.Conn.Resume()
	if err := await(t, "the answer", answer); err != nil {
		t.Errorf("it is committed, but the error is %v", err)
	}
	b.wantMade("k", 1)
}

// It is the same for who has something between a connection and its socket, and for who handles what comes with an answer.
func TestCommitThatOutlastsTheGraceIsUnknownAndGoesOnByItself(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*pgxpool.Config){
		"as it is": func(*pgxpool.Config) {},
		"a wrapped socket": func(config *pgxpool.Config) {
			dial := config.ConnConfig.DialFunc
			config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				return struct{ net.Conn }{conn}, err
			}
		},
		"a handler of notices": func(config *pgxpool.Config) { config.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) {} },
		"a handler of notifications": func(config *pgxpool.Config) {
			config.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
		},
		"a handler of errors": func(config *pgxpool.Config) {
			config.ConnConfig.OnPgError = func(*pgconn.PgConn, *pgconn.PgError) bool { return true }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			e := b.withEngine(pgx.TxOptions{}, Limits{Acquire: limit, Rollback: limit, Commit: time.Millisecond})
			b.change(e, change)
			if err := e.Do(t.Context(), 0, write("k", false, nil)); err != nil {
				t.Error(err)
			}
			b.wantMade("k", 1)
			ctx, cancel := context.WithCancel(t.Context())
			answer, event := b.frozenCommit(ctx, e)
			cancel()
			if err := await(t, "the answer", answer); !isUnknown(err) || !errors.Is(err, context.Canceled) {
				t.Errorf("the error is %v", err)
			}
			if n := Unanswered(e.Pool); n != 1 {
				t.Errorf("%d wait for an answer", n)
			}
			if n := e.Pool.Stat().AcquiredConns(); n != 0 {
				t.Errorf("the pool misses %d connections", n)
			}
			event.Conn.Resume()
			awaitAnswered(t, e.Pool)
			b.wantMade("k", 2)
		})
	}
}

// awaitAnswered waits until no COMMIT of the pool goes on by itself.
func awaitAnswered(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for deadline := time.Now().Add(limit); Unanswered(pool) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it waits although the answer has come")
		}
	}
}

// Of an answer that has begun it is not known whether the rest comes. The caller is not kept by it.
func TestAnswerToCommitThatStopsHalfwayIsUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{}, Limits{Acquire: limit, Rollback: limit, Commit: time.Millisecond})
	tx := b.open(e, "k")
	trap := b.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Freeze) // what is before it passes
	ctx, cancel := context.WithCancel(t.Context())
	answer := b.commit(ctx, tx)
	event := await(t, "the trap", trap.Fired())
	cancel()
	if err := await(t, "the answer", answer); !isUnknown(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	tx.Close()
	if n := e.Pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("the pool misses %d connections", n)
	}
	event.Conn.Resume()
	b.wantMade("k", 1)
	if err := e.Do(t.Context(), 0, write("next", false, nil)); err != nil {
		t.Errorf("the pool is of no use: %v", err)
	}
}

// The grace of one COMMIT must not reach the connection when another caller has it.
func TestContextThatEndsAfterCommitLeavesTheConnectionAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{}, Limits{Acquire: limit, Rollback: limit, Commit: time.Nanosecond})
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		tx := b.open(e, "k")
		go cancel() // before, during or behind it
		if err := tx.Commit(ctx); err != nil && !isUnknown(err) && !errors.Is(err, context.Canceled) {
			t.Fatalf("%d: %v", i, err)
		}
		tx.Close()
		cancel()
		if err := e.Do(t.Context(), 0, func(tx pgx.Tx) (bool, error) {
			_, err := tx.Exec(t.Context(), "select 1")
			return true, err
		}); err != nil {
			t.Fatalf("%d: the next one: %v", i, err)
		}
	}
}

// While a write takes long, pgx reads in the background: the answer may have been read before a caller waits for it.
func TestAnswerToCommitThatWasReadAheadIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{}, DefaultLimits)
	door := newGate()
	b.change(e, door.dial)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx := b.open(e, "k")
	door.shut()
	answer := b.commit(ctx, tx, oversized{}) // more than fits into the buffers of a socket
	time.AfterFunc(10*slowWrite, door.open)  // what pgx takes for slow; if it is too early, this tests nothing
	if err := await(t, "the answer", answer); err != nil {
		t.Error(err)
	}
	b.wantMade("k", 1)
}

// A goroutine that loses its processor behind a write makes pgx read in the background, and what does goes on to the next answer.
func TestAnswerToCommitThatAnEarlierReaderTakesIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{}, DefaultLimits)
	var late atomic.Bool
	b.change(e, func(config *pgxpool.Config) {
		config.ConnConfig.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
			return pgproto3.NewFrontend(r, lateWriter{w, &late})
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx := b.open(e, "k")
	late.Store(true)
	if _, err := tx.conn.Exec(ctx, "select 1"); err != nil {
		t.Fatal(err)
	}
	late.Store(false)
	answer := b.commit(ctx, tx)
	if err := await(t, "the answer", answer); err != nil {
		t.Error(err)
	}
	b.wantMade("k", 1)
}

// lateWriter takes a while to return, for as long as late is set, when everything was written.
type lateWriter struct {
	io.Writer
	late *atomic.Bool
}

func (w lateWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if w.late.Load() {
		time.Sleep(12 * slowWrite) // the answer comes meanwhile; if it does not, this tests nothing
	}
	return n, err
}

func TestCommitThatCannotBeSentIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx := b.open(b.engine, "k")
	answer := b.commit(ctx, tx, unsendable{})
	if err := await(t, "the answer", answer); err == nil {
		t.Error("it was sent")
	}
	tx.Close()
	b.wantMade("k", 0)
}

// unsendable has more parameters than there may be.
type unsendable struct{}

var many = roundtrip.New(roundtrip.Statement{SQL: "select 1"})

func (unsendable) Queue(trip *roundtrip.Trip) { trip.Add(many, make([][]byte, 70_000)...) }
func (unsendable) Read(trip *roundtrip.Trip)  { trip.Skip() }

// What is sent to a channel that one listens to comes with the answer to COMMIT. Its handler may take as long as it likes.
func TestHandlerOfANotificationKeepsNobodyFromLeaving(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{}, Limits{Acquire: limit, Rollback: limit, Commit: time.Millisecond})
	handling, release := make(chan bool, 1), make(chan bool)
	b.change(e, func(config *pgxpool.Config) {
		config.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {
			handling <- true
			<-release
		}
	})
	tx := b.open(e, "k")
	if _, err := tx.conn.Exec(t.Context(), "listen x; notify x"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	answer := b.commit(ctx, tx)
	t.Cleanup(func() { close(release) }) // before anything is closed that the handler has in use
	await(t, "the handler", handling)
	cancel()
	if err := await(t, "the answer", answer); !isUnknown(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	b.wantMade("k", 1)
}

// The goroutine that is left to read the answer reads on the same socket, and later that belongs to another caller.
func TestSocketIsOfUseWhenTheGraceIsOver(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	read := func() error {
		t.Helper()
		answer := make(chan error, 1)
		go func() {
			_, err := here.Read(make([]byte, 1))
			answer <- err
		}()
		return await(t, "the end of a read", answer)
	}
	g := newGrace(ctx, time.Nanosecond, here)
	if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the read ended with %v", err)
	}
	if !g.end() {
		t.Error("it does not know that it has ended something")
	}
	go there.Write([]byte{1})
	if err := read(); err != nil {
		t.Errorf("the next read ended with %v", err)
	}
	if err := here.SetDeadline(time.Unix(1, 0)); err != nil { // another's
		t.Fatal(err)
	}
	g.end()
	if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it has lifted another's deadline: %v", err)
	}
}

// A write that takes up some of the grace leaves the rest.
func TestGraceIsGivenOnce(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	ctx, cancel := context.WithCancel(t.Context())
	g := newGrace(ctx, time.Hour, here)
	if left := g.left(); left != time.Hour {
		t.Errorf("%v are left while the context lives", left)
	}
	cancel()
	for deadline := time.Now().Add(limit); g.left() == time.Hour; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not begin")
		}
	}
	if g.end() {
		t.Error("it has ended what there was time for")
	}
	if left := g.left(); left >= time.Hour || left < time.Hour-limit {
		t.Errorf("%v are left", left)
	}
}

// A COMMIT of which not all could be written is no longer waited for either, and its connection has left the pool.
func TestCommitThatIsNotWrittenInTimeIsUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{}, Limits{Acquire: limit, Rollback: limit, Commit: time.Millisecond})
	door := newGate()
	b.change(e, door.dial)
	tx := b.open(e, "k")
	door.shut()
	defer door.open()
	ctx, cancel := context.WithCancel(t.Context())
	answer := b.commit(ctx, tx, oversized{})
	time.AfterFunc(10*slowWrite, cancel)
	if err := await(t, "the answer", answer); !isUnknown(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	tx.Close()
	if n := e.Pool.Stat().TotalConns(); n != 0 {
		t.Errorf("the pool has %d connections", n)
	}
}

// oversized is a request of many bytes.
type oversized struct{}

var swallow = roundtrip.New(roundtrip.Statement{
	SQL: "select pg_catalog.length($1::pg_catalog.bytea)", Params: []roundtrip.Param{roundtrip.BytesParam}, Results: []int16{roundtrip.Text},
})

func (oversized) Queue(trip *roundtrip.Trip) { trip.Add(swallow, make([]byte, 32<<20)) }
func (oversized) Read(trip *roundtrip.Trip)  { trip.Skip() }

// gate lets what clients send through while it is open.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil while it is open
}

func newGate() *gate { return &gate{} }

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.closed)
	g.closed = nil
}

func (g *gate) pass() {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed != nil {
		<-closed
	}
}

// dial makes connections go through the gate.
func (g *gate) dial(config *pgxpool.Config) {
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		server, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return g.between(server)
	}
}

// between returns a socket that leads to the server through the gate.
func (g *gate) between(server net.Conn) (net.Conn, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return nil, err
	}
	behind, err := listener.Accept()
	if err != nil {
		return nil, err
	}
	go func() {
		defer behind.Close()
		_, _ = io.Copy(behind, server)
	}()
	go func() {
		defer server.Close()
		buf := make([]byte, 32<<10)
		for {
			g.pass()
			n, err := behind.Read(buf)
			if err == nil {
				g.pass()
				_, err = server.Write(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return client, nil
}
