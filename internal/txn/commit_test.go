package txn

import (
	"context"
	"errors"
	"io"
	"net"
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
	"github.com/idem-go/idem/lab/waiting"
)

func isUnknown(err error) bool {
	var unknown *UnknownError
	return errors.As(err, &unknown)
}

func TestTxCommit_FailsIfServerAnswersRollback(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{CommitQuery: "rollback"}, DefaultLimits)
	err := e.Do(t.Context(), 3, write("k", false, nil))
	if !errors.Is(err, ErrAborted) || !errors.Is(err, pgx.ErrTxCommitRollback) || isUnknown(err) {
		t.Errorf("the error is %v", err)
	}
	b.wantMade("k", 0)
}

// The transaction may have committed before the server ended the session.
func TestTxCommit_IsUnknownIfServerEndsSession(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{CommitQuery: "select pg_terminate_backend(pg_backend_pid())"}, DefaultLimits)
	if err := e.Do(t.Context(), 3, write("k", false, nil)); !isUnknown(err) || !HasCode(err, "57P01") {
		t.Errorf("the error is %v", err)
	}
}

// A distributed server, or a pooler, may lose track of a COMMIT and report that.
func TestTxCommit_IsUnknownIfServerIsUncertain(t *testing.T) {
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

func TestRefused_ExcludesFatalErrors(t *testing.T) {
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

// frozenCommit sends a COMMIT. Its answer does not arrive until the event's connection is resumed.
func (b *bench) frozenCommit(ctx context.Context, e *Engine) (answer <-chan error, event pgproxy.Event) {
	b.t.Helper()
	tx := b.open(e, "k")
	trap := b.proxy.Arm(pgproxy.AfterForward(pgproxy.IsCommit), pgproxy.Freeze)
	answer = b.commit(ctx, tx)
	return answer, await(b.t, "the trap", trap.Fired())
}

// The result is the same if a wrapper is around the socket, or if the caller handles messages.
func TestTxCommit_StaysPendingAfterLimit(t *testing.T) {
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
			if n := PendingCommits(e.Pool); n != 1 {
				t.Errorf("%d COMMITs are pending", n)
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

// awaitAnswered waits until no COMMIT of the pool is pending.
func awaitAnswered(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	waiting.Until(t, "no COMMIT is pending after its answer has arrived", func() bool { return PendingCommits(pool) == 0 })
}

// A caller does not wait for the rest of an answer that has begun to arrive.
func TestTxCommit_IsUnknownIfAnswerStopsHalfway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{}, Limits{Acquire: limit, Rollback: limit, Commit: time.Millisecond})
	tx := b.open(e, "k")
	trap := b.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Freeze) // the answers before it arrive
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
		t.Errorf("the next transaction: %v", err)
	}
}

// The deadline of one COMMIT must not interrupt the connection once another caller has it.
func TestTxCommit_LateEndOfContextSparesConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{}, Limits{Acquire: limit, Rollback: limit, Commit: time.Nanosecond})
	for i := range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		tx := b.open(e, "k")
		go cancel() // before, during or after the COMMIT
		if err := tx.Commit(ctx); err != nil && !isUnknown(err) && !errors.Is(err, context.Canceled) {
			t.Fatalf("%d: %v", i, err)
		}
		tx.Close()
		cancel()
		if err := e.Do(t.Context(), 0, func(tx pgx.Tx) (bool, error) {
			_, err := tx.Exec(t.Context(), "select 1")
			return true, err
		}); err != nil {
			t.Fatalf("%d: the next transaction: %v", i, err)
		}
	}
}

// During a slow write pgx reads in the background, so the answer may have been read before the
// caller waits for it.
func TestTxCommit_FindsAnswerReadDuringSlowWrite(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{}, DefaultLimits)
	g := newGate()
	b.change(e, g.dial)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx := b.open(e, "k")
	g.shut()
	answer := b.commit(ctx, tx, oversized{})
	time.AfterFunc(10*slowWrite, g.open) // long enough for pgx to read in the background
	if err := await(t, "the answer", answer); err != nil {
		t.Error(err)
	}
	b.wantMade("k", 1)
}

// If a goroutine is descheduled after a write, pgx reads in the background, and that reader also
// takes the next answer.
func TestTxCommit_FindsAnswerReadByEarlierReader(t *testing.T) {
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

// lateWriter delays the return of Write while late is set.
type lateWriter struct {
	io.Writer
	late *atomic.Bool
}

func (w lateWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if w.late.Load() {
		time.Sleep(12 * slowWrite) // long enough for the answer to arrive
	}
	return n, err
}

// A notification of the session's own channel arrives with the answer to COMMIT. Its handler may
// block.
func TestTxCommit_ReturnsDespiteBlockedHandler(t *testing.T) {
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
	t.Cleanup(func() { close(release) }) // before the connection is closed, which the handler blocks
	await(t, "the handler", handling)
	cancel()
	if err := await(t, "the answer", answer); !isUnknown(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	b.wantMade("k", 1)
}

// A caller does not wait for a COMMIT that cannot be written, and the connection leaves the pool.
func TestTxCommit_IsUnknownIfWriteBlocks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.withEngine(pgx.TxOptions{}, Limits{Acquire: limit, Rollback: limit, Commit: time.Millisecond})
	g := newGate()
	b.change(e, g.dial)
	tx := b.open(e, "k")
	g.shut()
	defer g.open()
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

// oversized is a request that does not fit into the buffers of a socket.
type oversized struct{}

var swallow = roundtrip.New(roundtrip.Statement{
	SQL: "select pg_catalog.length($1::pg_catalog.bytea)", Params: []roundtrip.Param{roundtrip.BytesParam}, Results: []int16{roundtrip.Text},
})

func (oversized) Queue(trip *roundtrip.Trip) { trip.Add(swallow, make([]byte, 32<<20)) }
func (oversized) Read(trip *roundtrip.Trip)  { trip.Skip() }

// gate forwards what clients send while it is open.
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

// dial makes connections pass the gate.
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

// between returns a socket that leads to server through the gate.
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
