package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestHandle_GivesAMessageItsEffectOnce(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for i, want := range []inbox.State{inbox.Done, inbox.Duplicate, inbox.Duplicate} {
		if o := b.handle("m"); o.State != want || o.Err != nil {
			t.Errorf("delivery %d: %+v", i, o)
		}
	}
	other := message("m") // type and headers do not identify a message
	other.Type, other.Headers = "OrderMoved", map[string]string{"trace": "another"}
	b.wantStates("d", b.batch([]inbox.Message{other}, b.record))
	b.wantOnce(1)
	if n := b.runs.Load(); n != 1 {
		t.Errorf("fn ran %d times", n)
	}
}

func TestHandle_SeparatesConsumersAndSources(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for i, call := range []struct{ consumer, source string }{{"billing", "orders"}, {"mail", "orders"}, {"billing", "refunds"}, {"b", "illing"}} {
		m := inbox.Message{Source: call.source, ID: "m"}
		o, err := inbox.Handle(t.Context(), b.pool, call.consumer, m, b.recordID("m"))
		if err != nil || o.State != inbox.Done {
			t.Errorf("%d: %+v, %v", i, o, err)
		}
	}
	if n := b.count(`select count(*) from books`); n != 4 {
		t.Errorf("%d effects", n)
	}
}

func TestHandle_MismatchNamesTheMessage(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	const id, secret = "a-message-id-that-is-long-enough", "the payload that is not to be seen"
	b.handle(id)
	for range 2 {
		m := message(id)
		m.Payload = []byte(secret)
		o, err := inbox.Handle(t.Context(), b.pool, consumer, m, b.recordID(id))
		var mismatch *inbox.MismatchError
		if !errors.Is(err, inbox.ErrMismatch) || !errors.As(o.Err, &mismatch) || o.State != inbox.Dead {
			t.Fatalf("%+v, %v", o, err)
		}
		if text := err.Error(); mismatch.Message != id || !strings.Contains(text, "message "+id) || strings.Contains(text, secret) {
			t.Errorf("the error says %q", text)
		}
	}
	b.wantOnce(1)
	if n := b.count(`select count(*) from idem.dead_letters where class = 'mismatch' and payload = $1`, []byte(secret)); n != 1 {
		t.Errorf("%d dead letters have the other payload", n)
	}
	if o := b.handle(id); o.State != inbox.Duplicate {
		t.Errorf("the first message is %+v", o)
	}
}

func TestHandle_DeadLettersAnInvalidID(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for _, id := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 513)} {
		m := inbox.Message{Source: "orders", ID: id, Payload: []byte("of " + fmt.Sprintf("%x", id))}
		for range 2 {
			o, err := inbox.Handle(t.Context(), b.pool, consumer, m, b.recordID("m"))
			if err != nil || o.State != inbox.Dead || !errors.Is(o.Err, inbox.ErrInvalidName) {
				t.Errorf("%q: %+v, %v", id, o, err)
			}
		}
		if n := b.count(`select count(*) from idem.dead_letters where class = 'invalid' and payload = $1`, m.Payload); n != 1 {
			t.Errorf("%q: %d dead letters", id, n)
		}
	}
	b.wantEffects()
}

func TestHandle_ChecksItsArguments(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	fn := b.recordID("m")
	for name, call := range map[string]struct {
		pool     *pgxpool.Pool
		consumer string
		message  inbox.Message
		fn       func(pgx.Tx) error
		opt      inbox.Option
	}{
		"no pool":     {nil, consumer, message("m"), fn, noCircuit},
		"no fn":       {b.pool, consumer, message("m"), nil, noCircuit},
		"no consumer": {b.pool, "", message("m"), fn, noCircuit},
		"no source":   {b.pool, consumer, inbox.Message{ID: "m"}, fn, noCircuit},
		"no attempt":  {b.pool, consumer, message("m"), fn, inbox.WithMaxAttempts(0)},
		"nil option":  {b.pool, consumer, message("m"), fn, nil},
		"nil sealer":  {b.pool, consumer, message("m"), fn, inbox.WithSealer(nil)},
		"backoff":     {b.pool, consumer, message("m"), fn, inbox.WithBackoff(time.Second, time.Millisecond)},
		"read only":   {b.pool, consumer, message("m"), fn, inbox.WithTxOptions(pgx.TxOptions{AccessMode: pgx.ReadOnly})},
	} {
		o, err := inbox.Handle(t.Context(), call.pool, call.consumer, call.message, call.fn, call.opt)
		if err == nil || o.State != "" {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	if b.runs.Load() != 0 {
		t.Error("fn ran")
	}
	if outcomes, err := inbox.Batch(t.Context(), b.pool, consumer, nil, b.record); err != nil || len(outcomes) != 0 {
		t.Errorf("no messages: %v, %v", outcomes, err)
	}
	empty := pgtest.Open(t, pgtest.EmptyDSN(t))
	if o, err := inbox.Handle(t.Context(), empty, consumer, message("m"), fn); err == nil || o.State != inbox.Retry {
		t.Errorf("without a schema: %+v, %v", o, err)
	}
}

func TestHandle_AcceptsHostileIDsAndKeys(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{
		"exec": pgx.QueryExecModeExec, "simple protocol": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			var ms []inbox.Message
			for _, id := range []string{`'`, `"`, `\`, `{a,b}`, `NULL`, ` a `, `\"`, `$1`, `'); drop table books --`, "ü\u2028"} {
				ms = append(ms, inbox.Message{Source: `s'"\{,} ` + id, ID: id, Key: id + "\x00", Payload: bytes.Repeat([]byte{0, '\\', '\'', 255}, 3)})
			}
			fail := func(tx pgx.Tx, m inbox.Message) error { return errPoison }
			for i, o := range b.batch(ms, fail) {
				if o.State != inbox.Retry || !errors.Is(o.Err, errPoison) {
					t.Errorf("%q: %+v", ms[i].ID, o)
				}
			}
			b.due()
			for _, want := range []inbox.State{inbox.Done, inbox.Duplicate} {
				for i, o := range b.batch(ms, b.record) {
					if o.State != want {
						t.Errorf("%q: %+v", ms[i].ID, o)
					}
				}
			}
			b.wantOnce(len(ms))
		})
	}
}

func TestBatch_WorksAtEveryIsolationLevel(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for i, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		opts, ms := []inbox.Option{inbox.WithTxOptions(pgx.TxOptions{IsoLevel: level})}, messages(string(level), 4)
		b.wantStates("DDRD", b.batch(ms, b.failing(ms[2].ID), opts...))
		b.due()
		b.wantStates("ddDd", b.batch(ms, b.record, opts...))
		b.wantOnce(4 * (i + 1))
	}
}

func TestHandle_CommitsMessageAndEffectTogether(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	release := b.hold("m")
	if n := b.count(`select count(*) from books`) + b.count(`select count(*) from idem.inbox`); n != 0 {
		t.Errorf("%d rows are visible before the commit", n)
	}
	release()
	b.wantOnce(1)
}

func TestHandle_WaitsForAMessageInProgressElsewhere(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	release := b.hold("m")
	second := make(chan inbox.Outcome, 1)
	go func() {
		o, _ := inbox.Handle(context.Background(), b.pool, consumer, message("m"), b.recordID("m"), inbox.WithLimits(limit, limit, limit))
		second <- o
	}()
	b.awaitBlocked(1)
	release()
	if o := await(t, "the second delivery", second); o.State != inbox.Duplicate {
		t.Errorf("%+v", o)
	}
	b.wantOnce(1)
}

func TestBatch_PostponesAMessageInProgressElsewhere(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	release := b.hold("m-0002")
	for want, ms := range map[string][]inbox.Message{"DDRDD": messages("m", 5), "R": redelivered([]inbox.Message{message("m-0002")})} {
		begun := time.Now()
		outcomes := b.batch(ms, b.record, inbox.WithLimits(20*time.Millisecond, limit, limit))
		b.wantStates(want, outcomes)
		if o := outcomes[len(outcomes)/2]; !errors.Is(o.Err, inbox.ErrElsewhere) || !o.RetryAt.After(begun) {
			t.Errorf("%+v", o)
		}
	}
	release()
	b.wantOnce(5)
	if n := b.count(`select count(*) from idem.inbox where state <> 'handled'`); n != 0 {
		t.Errorf("%d failures are stored", n)
	}
}
