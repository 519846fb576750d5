package txn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lateCancels delays CancelRequests, like a slow postmaster or a pooler that queues them.
type lateCancels struct {
	asked   chan struct{} // a CancelRequest is about to be sent
	release chan struct{} // closed when they may be sent
	arrived chan struct{} // a CancelRequest was answered
	once    sync.Once
}

func (b *bench) holdCancels(e *Engine) *lateCancels {
	l := &lateCancels{asked: make(chan struct{}, 8), release: make(chan struct{}), arrived: make(chan struct{}, 8)}
	b.change(e, func(config *pgxpool.Config) {
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &lateCancel{Conn: conn, late: l}, err
		}
	})
	b.t.Cleanup(l.letGo)
	return l
}

func (l *lateCancels) letGo() { l.once.Do(func() { close(l.release) }) }

// lateCancel is a connection that holds its first packet until the release, if that is a
// CancelRequest.
type lateCancel struct {
	net.Conn
	late     *lateCancels
	begun    bool
	isCancel bool
}

func (c *lateCancel) Write(b []byte) (int, error) {
	const code = 80877102
	if c.begun || len(b) < 8 || binary.BigEndian.Uint32(b[4:8]) != code {
		c.begun = true
		return c.Conn.Write(b)
	}
	c.begun, c.isCancel = true, true
	packet := bytes.Clone(b)
	go func() {
		defer c.Conn.Close()
		<-c.late.release
		_ = c.SetDeadline(time.Time{})
		_, _ = c.Conn.Write(packet)
		_, _ = io.Copy(io.Discard, c.Conn)
		c.late.arrived <- struct{}{}
	}()
	c.late.asked <- struct{}{}
	return len(b), nil
}

func (c *lateCancel) Close() error {
	if c.isCancel {
		return nil
	}
	return c.Conn.Close()
}

// blocked is a request that waits for the lock of the row.
const blocked = command("update made set pair = pair where name = 'row'")

// lockRow inserts a row and locks it until unlock is called.
func (b *bench) lockRow() (unlock func()) {
	b.t.Helper()
	if _, err := b.direct.Exec(b.t.Context(), "insert into made (name) values ('row')"); err != nil {
		b.t.Fatal(err)
	}
	tx, err := b.direct.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	unlock = sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	b.t.Cleanup(unlock)
	if _, err := tx.Exec(b.t.Context(), "select from made where name = 'row' for update"); err != nil {
		b.t.Fatal(err)
	}
	return unlock
}

// patient returns an engine with a short BeginTimeout and an open connection.
func (b *bench) patient(cancel time.Duration) (*Engine, *lateCancels) {
	b.t.Helper()
	e := b.withEngine(pgx.TxOptions{}, Limits{Acquire: limit, Rollback: cancel, Commit: limit})
	late := b.holdCancels(e)
	b.open(e, "first").Close()
	e.BeginTimeout = 100 * time.Millisecond
	return e, late
}

func TestEngineOpen_GivesUpIfCancelIsUnanswered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, late := b.patient(time.Hour)
	unlock := b.lockRow()
	answer := make(chan error, 1)
	go func() {
		tx, err := e.Open(context.Background(), blocked)
		if err == nil {
			tx.Close()
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		if !errors.Is(err, ErrUnanswered) || errors.Is(err, ErrBlocked) || !Transient(err) {
			t.Errorf("the error is %v", err)
		}
	case <-time.After(limit):
		late.letGo()
		unlock()
		t.Errorf("Open exceeds BeginTimeout; then it returns %v", await(t, "the answer", answer))
	}
}

// A CancelRequest may reach the server long after its statement has ended.
func TestEngineOpen_LateCancelHitsNoOtherStatement(t *testing.T) {
	t.Parallel()
	for name, unlockFirst := range map[string]bool{"the row is held until the end": false, "the answer comes meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			e, late := b.patient(50 * time.Millisecond)
			unlock := b.lockRow()
			begun := make(chan *Tx, 1)
			go func() {
				tx, err := e.Open(context.Background(), blocked)
				if err != nil && !errors.Is(err, ErrUnanswered) {
					t.Errorf("the error is %v", err)
				}
				begun <- tx
			}()
			beginning := sync.OnceValue(func() *Tx { return await(t, "the beginning", begun) })
			defer func() { // also if the test ends early, because closing the pool waits for the connection
				unlock()
				if tx := beginning(); tx != nil {
					tx.Close()
				}
			}()
			await(t, "the cancel", late.asked)
			if unlockFirst {
				unlock()
			}
			defer time.AfterFunc(20*time.Second, unlock).Stop()
			tx := beginning()
			e.BeginTimeout = 0
			if tx == nil {
				var err error
				if tx, err = e.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			defer tx.Close()
			if err := b.whileWaiting(tx, func() {
				late.letGo()
				await(t, "the cancel to arrive", late.arrived)
			}); err != nil {
				t.Errorf("the next statement ended with %v", err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// whileWaiting calls f while a statement of tx waits for a lock, and returns the error of the
// statement.
func (b *bench) whileWaiting(tx *Tx, f func()) error {
	b.t.Helper()
	const lock = "select pg_advisory_xact_lock(4711)"
	holder, err := b.direct.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	defer holder.Rollback(context.Background())
	if _, err := holder.Exec(b.t.Context(), lock); err != nil {
		b.t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() { answer <- tx.Ask(context.Background(), command(lock)) }()
	b.awaitTrue("select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'advisory')")
	f()
	if err := holder.Rollback(context.Background()); err != nil {
		b.t.Fatal(err)
	}
	return await(b.t, "the statement", answer)
}

// awaitTrue polls the server until the query returns true.
func (b *bench) awaitTrue(sql string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for ok := false; !ok; {
		if err := b.direct.QueryRow(ctx, sql).Scan(&ok); err != nil {
			b.t.Fatalf("waiting for %s: %v", sql, err)
		}
	}
}

// A blocked session would occupy a slot of the server for as long as the row is locked.
func TestEngineOpen_EndsBlockedSessionOnServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, late := b.patient(time.Hour)
	late.letGo()
	b.lockRow()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := e.Open(ctx, blocked); !errors.Is(err, ErrBlocked) {
		t.Fatalf("the error is %v", err)
	}
	b.awaitTrue("select not exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')")
	e.BeginTimeout = 0
	if err := e.Do(t.Context(), 0, write("next", false, nil)); err != nil {
		t.Error(err)
	}
	b.wantMade("next", 1)
}

func TestEngineOpen_KeepsConnectionThatBeginsInTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, _ := b.patient(limit)
	e.BeginTimeout = limit
	for range 3 {
		if err := e.Do(t.Context(), 0, write("k", false, nil)); err != nil {
			t.Error(err)
		}
	}
	if n := e.Pool.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
}
