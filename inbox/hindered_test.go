package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/inbox"
)

// accounts inserts an account for each message and locks one of them until release is called. It
// returns a handler that runs statement for the account of its message.
func (b *fixture) accounts(ms []inbox.Message, locked, statement string) (fn func(pgx.Tx, inbox.Message) error, release func()) {
	b.t.Helper()
	b.exec(`create table accounts (id text primary key, balance int not null default 0)`)
	for _, m := range ms {
		b.exec(`insert into accounts values ($1)`, m.ID)
	}
	holder, err := b.pool.Begin(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { holder.Rollback(context.Background()) })
	if _, err := holder.Exec(context.Background(), `select from accounts where id = $1 for update`, locked); err != nil {
		b.t.Fatal(err)
	}
	return func(tx pgx.Tx, m inbox.Message) error {
		if err := b.record(tx, m); err != nil {
			return err
		}
		_, err := tx.Exec(context.Background(), statement, m.ID)
		return err
	}, func() { holder.Rollback(context.Background()) }
}

func TestBatch_PostponesALockedMessageAlone(t *testing.T) {
	t.Parallel()
	const nowait = `select from accounts where id = $1 for update nowait`
	for name, handle := range handlings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			ms := messages("m", 30)
			fn, release := b.accounts(ms, "m-0017", nowait)
			opts := []inbox.Option{inbox.WithMaxAttempts(1), inbox.WithBackoff(time.Minute, time.Hour)}
			want := strings.Repeat("D", 17) + "R" + strings.Repeat("D", 12)
			for range 3 { // it is never a dead letter of it
				before := time.Now()
				outcomes := handle(b, ms, fn, opts...)
				b.wantStates(want, outcomes)
				var pgErr *pgconn.PgError
				if o := outcomes[17]; !errors.As(o.Err, &pgErr) || pgErr.Code != "55P03" || o.RetryAt.Before(before.Add(20*time.Second)) {
					t.Errorf("%+v", o)
				}
				b.due()
				want = strings.Repeat("d", 17) + "R" + strings.Repeat("d", 12)
			}
			if n := b.attempts("m-0017"); n != 0 {
				t.Errorf("%d attempts are counted", n)
			}
			release()
			b.wantStates("D", handle(b, ms[17:18], fn, opts...))
			b.wantOnce(30)
		})
	}
}

func TestHandle_BacksOffHinderedMessages(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := messages("m", 1)
	fn, _ := b.accounts(ms, ms[0].ID, `select from accounts where id = $1 for update nowait`)
	for i, least := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		before := time.Now()
		o := b.batch(ms, fn)[0]
		if pause := o.RetryAt.Sub(before); o.State != inbox.Retry || pause < least*time.Second || pause > least*time.Second*9/8+time.Minute {
			t.Errorf("attempt %d: the pause is %v, want about %d s", i, pause, least)
		}
		b.due()
	}
	if n := b.count(`select hindered from idem.inbox`); n != 7 {
		t.Errorf("%d are stored", n)
	}
}

func TestBatch_PostponesAHinderedMessageAlone(t *testing.T) {
	t.Parallel()
	raise := func(code string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), fmt.Sprintf(`do $$ begin raise exception 'no' using errcode = '%s'; end $$`, code))
			return err
		}
	}
	elsewhere := &pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01"} // of a database of the handler's own
	for name, hinders := range map[string]func(pgx.Tx) error{
		"lock_timeout": raise("55P03"), "temp_file_limit": raise("53400"), "out of memory": raise("53200"), "too many connections": raise("53300"),
		"serialization failure": raise("40001"), "deadlock": raise("40P01"), "read-only": raise("25006"), "connection failure": raise("08006"),
		"shutdown of another database": func(pgx.Tx) error { return elsewhere },
		"canceled":                     func(pgx.Tx) error { return fmt.Errorf("not done: %w", context.Canceled) },
		"its connection is ended": func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), `select pg_terminate_backend(pg_backend_pid())`)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			outcomes := b.batch(messages("m", 6), func(tx pgx.Tx, m inbox.Message) error {
				if err := b.record(tx, m); err != nil || m.ID != "m-0003" {
					return err
				}
				return hinders(tx)
			}, inbox.WithMaxAttempts(1))
			b.wantStates("DDDRDD", outcomes)
			if outcomes[3].Err == nil || b.attempts("m-0003") != 0 {
				t.Errorf("%+v, %d attempts are counted", outcomes[3], b.attempts("m-0003"))
			}
			b.due()
			b.wantStates("dddDdd", b.batch(messages("m", 6), b.record))
			b.wantOnce(6)
		})
	}
}

// A statement that exceeded statement_timeout would take as long in the next attempt.
func TestBatch_CountsAStatementTimeout(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	outcomes := b.batch(messages("m", 3), func(tx pgx.Tx, m inbox.Message) error {
		if err := b.record(tx, m); err != nil || m.ID != "m-0001" {
			return err
		}
		_, err := tx.Exec(t.Context(), `set local statement_timeout = '1ms'; select pg_sleep(100)`, pgx.QueryExecModeSimpleProtocol)
		return err
	})
	b.wantStates("DRD", outcomes)
	if n := b.attempts("m-0001"); n != 1 {
		t.Errorf("%d attempts are counted", n)
	}
}

// An invalid statement may fail with the SQLSTATE of a stale prepared statement.
func TestBatch_CountsAPersistentStaleStatement(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	outcomes := b.batch(messages("m", 3), func(tx pgx.Tx, m inbox.Message) error {
		if err := b.record(tx, m); err != nil || m.ID != "m-0001" {
			return err
		}
		_, err := tx.Exec(t.Context(), `select count(*) from books for update`)
		return err
	})
	b.wantStates("DRD", outcomes)
	if n := b.attempts("m-0001"); n != 1 {
		t.Errorf("%d attempts are counted", n)
	}
}

func TestWithOrder_BlocksBehindAHinderedMessage(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := messages("m", 4)
	for i, key := range []string{"a", "b", "a", "b"} {
		ms[i].Key = key
	}
	fn, release := b.accounts(ms, ms[0].ID, `select from accounts where id = $1 for update nowait`)
	opts := []inbox.Option{inbox.WithOrder()}
	b.wantStates("RDRD", b.batch(ms, fn, opts...))
	b.wantStates("R", b.batch(ms[2:3], fn, opts...)) // in a delivery of its own
	release()
	b.due()
	b.wantStates("DdDd", b.batch(ms, fn, opts...))
	b.wantEffects("m-0001", "m-0003", "m-0000", "m-0002")
}
