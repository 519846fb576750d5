package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

func TestBatch_RollsBackAFailingMessageAlone(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for name, poison := range map[string][]int{
		"first": {0}, "last": {9}, "neighbors": {4, 5}, "ends": {0, 9}, "all": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
	} {
		ms, want := messages(name, 10), []byte("DDDDDDDDDD")
		var ids []string
		for _, i := range poison {
			want[i] = 'R'
			ids = append(ids, ms[i].ID)
		}
		soonest, before := time.Now().Add(time.Second), b.runs.Load() // the backoff of the first attempt
		outcomes := b.batch(ms, b.failing(ids...), noCircuit)
		b.wantStates(string(want), outcomes)
		for _, i := range poison {
			if o := outcomes[i]; !errors.Is(o.Err, errPoison) || o.RetryAt.Before(soonest) {
				t.Errorf("%+v", o)
			}
			if n := b.attempts(ms[i].ID); n != 1 {
				t.Errorf("%s: %d attempts are stored", ms[i].ID, n)
			}
		}
		if n := b.runs.Load() - before; n > 20 {
			t.Errorf("%s: the handler ran %d times for 10 messages", name, n)
		}
	}
	b.wantOnce(9 + 9 + 8 + 8)
}

func TestHandle_DeadLettersAfterTheLastAttempt(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	m := message("poison")
	m.Key = "customer-7"
	opts := []inbox.Option{inbox.WithMaxAttempts(3)}
	handle := func() inbox.Outcome {
		return b.batch([]inbox.Message{m}, b.failing("poison"), opts...)[0]
	}
	for attempt := 1; attempt < 3; attempt++ {
		if o := handle(); o.State != inbox.Retry || b.attempts("poison") != attempt {
			t.Errorf("attempt %d: %+v", attempt, o)
		}
		b.due()
	}
	if o := handle(); o.State != inbox.Dead || !errors.Is(o.Err, errPoison) {
		t.Errorf("%+v", o)
	}
	shown, err := inbox.Show(t.Context(), b.pool, ref("poison"))
	if diff := cmp.Diff(m, shown.Message); err != nil || diff != "" || shown.Attempts != 3 || shown.Class != "error" || shown.Reason != errPoison.Error() {
		t.Errorf("%+v, %v\n%s", shown, err, diff)
	}
	runs := b.runs.Load()
	if o := handle(); o.State != inbox.Dead || !errors.Is(o.Err, inbox.ErrDead) || b.runs.Load() != runs {
		t.Errorf("delivered once more: %+v", o)
	}
	b.wantEffects()
}

func TestHandle_WaitsUntilTheAttemptIsDue(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	opts := []inbox.Option{inbox.WithBackoff(time.Hour, time.Hour)}
	first := b.batch(messages("m", 1), b.failing("m-0000"), opts...)[0]
	again := b.batch(messages("m", 3), b.failing(), opts...)
	b.wantStates("RDD", again)
	if o := again[0]; !errors.Is(o.Err, inbox.ErrWaiting) || o.RetryAt.Sub(first.RetryAt).Abs() > time.Minute {
		t.Errorf("first %+v, then %+v", first, o)
	}
	if n := b.attempts("m-0000"); n != 1 || b.runs.Load() != 3 {
		t.Errorf("%d attempts are stored after %d runs", n, b.runs.Load())
	}
}

// broken are handlers that fail in other ways than by returning an error of their own.
var broken = map[string]func(tx pgx.Tx) error{
	"panic":    func(pgx.Tx) error { panic("at the disco") },
	"exit":     func(pgx.Tx) error { runtime.Goexit(); return nil },
	"json":     func(pgx.Tx) error { return json.NewDecoder(strings.NewReader(`{"a`)).Decode(new(any)) },
	"EOF":      func(pgx.Tx) error { return io.EOF },
	"22012":    func(tx pgx.Tx) error { _, err := tx.Exec(context.Background(), `select 1/0`); return err },
	"ignored":  func(tx pgx.Tx) error { tx.Exec(context.Background(), `select 1/0`); return nil },
	"commit":   func(tx pgx.Tx) error { return tx.Commit(context.Background()) },
	"rollback": func(tx pgx.Tx) error { tx.Rollback(context.Background()); return nil },
	"rolled back": func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), `rollback`)
		return err
	},
	"rolled back and begun": func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), `rollback; begin`, pgx.QueryExecModeSimpleProtocol)
		return err
	},
	"rows left open": func(tx pgx.Tx) error { _, err := tx.Query(context.Background(), `select 1`); return err },
	"deadline": func(pgx.Tx) error { // of a call elsewhere
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		<-ctx.Done()
		return ctx.Err()
	},
	"statement_timeout": func(tx pgx.Tx) error { // another attempt would take as long
		_, err := tx.Exec(context.Background(), `set local statement_timeout = '1ms'; select pg_sleep(100)`, pgx.QueryExecModeSimpleProtocol)
		return err
	},
	"SQLSTATE of a stale statement": func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), `select count(*) from books for update`)
		return err
	},
}

func TestBatch_CountsEveryKindOfFailureAlone(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for name, breaks := range broken {
		ms := messages(name, 6)
		fn := func(tx pgx.Tx, m inbox.Message) error {
			if err := b.record(tx, m); err != nil || m.ID != ms[3].ID {
				return err
			}
			return breaks(tx)
		}
		outcomes := b.batch(ms, fn, inbox.WithMaxAttempts(2))
		b.wantStates("DDDRDD", outcomes)
		if outcomes[3].Err == nil || b.attempts(ms[3].ID) != 1 {
			t.Errorf("%s: %+v, %d attempts are stored", name, outcomes[3], b.attempts(ms[3].ID))
		}
		b.due()
		b.wantStates("dddXdd", b.batch(ms, fn, inbox.WithMaxAttempts(2)))
	}
	b.wantOnce(5 * len(broken))
}

func TestHandle_ReturnsThePanicWithItsStack(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	cause := errors.New("the cause")
	o := b.batch(messages("m", 1), func(pgx.Tx, inbox.Message) error { panic(cause) })[0]
	var panicked *inbox.PanicError
	if !errors.As(o.Err, &panicked) || !errors.Is(o.Err, cause) || !strings.Contains(string(panicked.Stack), "poison_test.go") {
		t.Errorf("%+v", o)
	}
}

// A handler that commits must not mark the messages behind it as handled.
func TestBatch_DeadLettersAHandlerThatCommits(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for sql, want := range map[string]string{"commit": "DDDXDD", "commit; begin": "XXXXXX"} {
		ms := messages(sql, 6)
		fn := func(tx pgx.Tx, m inbox.Message) error {
			if err := b.record(tx, m); err != nil || m.ID != ms[3].ID {
				return err
			}
			_, err := tx.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
			return err
		}
		outcomes := b.batch(ms, fn)
		b.wantStates(want, outcomes)
		if o := outcomes[3]; !errors.Is(o.Err, inbox.ErrTxEnded) {
			t.Errorf("%+v", o)
		}
		dead := strings.Count(want, "X")
		if n := b.count(`select count(*) from idem.dead_letters where class = 'ended' and id like $1`, sql+"-%"); n != dead {
			t.Errorf("%s: %d dead letters, want %d", sql, n, dead)
		}
		b.wantNoneLost(ms, outcomes)
		b.wantStates(strings.ReplaceAll(want, "D", "d"), b.batch(ms, fn))
	}
}

// SET ROLE outlasts the transaction, so the connection is closed. The role pg_monitor exists on every
// server and has no rights in the schema idem.
func TestBatch_SurvivesSetRole(t *testing.T) {
	t.Parallel()
	b := newFixture(t, connections(1))
	ms := messages("m", 2)
	b.wantStates("D", b.batch(ms[:1], func(tx pgx.Tx, m inbox.Message) error {
		err := b.record(tx, m)
		_, roleErr := tx.Exec(t.Context(), "set role pg_monitor")
		return errors.Join(err, roleErr)
	}))
	b.wantStates("D", b.batch(ms[1:], b.record))
	b.wantOnce(2)
}

func TestBatch_CountsNothingForACanceledContext(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	outcomes, err := inbox.Batch(ctx, b.pool, consumer, messages("m", 4), func(tx pgx.Tx, m inbox.Message) error {
		if err := b.record(tx, m); err != nil || m.ID != "m-0002" {
			return err
		}
		cancel()
		return fmt.Errorf("not done: %w", ctx.Err())
	}, inbox.WithMaxAttempts(1))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	b.wantStates("RRRR", outcomes)
	if n := b.count(`select count(*) from idem.inbox`); n != 0 {
		t.Errorf("%d rows are stored", n)
	}
	b.wantStates("DDDD", b.batch(messages("m", 4), b.record))
}

func TestBatch_RerunsASerializationFailure(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	failures := 2
	outcomes := b.batch(messages("m", 3), func(tx pgx.Tx, m inbox.Message) error {
		if err := b.record(tx, m); err != nil || failures == 0 {
			return err
		}
		failures--
		return raise("40001")(tx)
	})
	b.wantStates("DDD", outcomes)
	b.wantOnce(3)
}
