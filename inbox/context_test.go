package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

// recordingObserver records its calls, and adds its name to the contexts of handlers.
type recordingObserver struct {
	name  string
	lines *[]string
}

type nameKey struct{}

func (d recordingObserver) TraceHandled(_ context.Context, data inbox.TraceHandledData) {
	*d.lines = append(*d.lines, fmt.Sprintf("%s: %d done", d.name, data.Done))
}

func (d recordingObserver) TraceHandlerStart(ctx context.Context, data inbox.TraceHandlerStartData) context.Context {
	*d.lines = append(*d.lines, fmt.Sprintf("%s: begins %s %d %v", d.name, data.Consumer, data.Messages, data.Traces))
	before, _ := ctx.Value(nameKey{}).(string)
	return context.WithValue(ctx, nameKey{}, before+d.name)
}

func (d recordingObserver) TraceHandlerEnd(ctx context.Context, data inbox.TraceHandlerEndData) {
	*d.lines = append(*d.lines, fmt.Sprintf("%s: ends %v %v", d.name, ctx.Value(nameKey{}), data.Err))
}

func traced(id string) inbox.Message {
	m := message(id)
	m.Headers = map[string]string{"Traceparent": "00-" + id, "tracestate": "a=b"}
	return m
}

func TestContext_HasTheMessageAndTheDeadline(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	deadline, _ := ctx.Deadline()
	check := func(tx pgx.Tx, id string) error {
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		for _, of := range []pgx.Tx{tx, savepoint} {
			theirs := inbox.Context(of)
			m, ok := inbox.MessageOf(theirs)
			if got, _ := theirs.Deadline(); !got.Equal(deadline) || ok != (id != "") || m.ID != id {
				t.Errorf("%q: the message %+v, the deadline %v", id, m, got)
			}
		}
		return savepoint.Commit(ctx)
	}
	if _, err := inbox.Handle(ctx, b.pool, consumer, message("a"), func(tx pgx.Tx) error { return check(tx, "a") }); err != nil {
		t.Error(err)
	}
	if _, err := inbox.Batch(ctx, b.pool, consumer, messages("m", 3), func(tx pgx.Tx, m inbox.Message) error { return check(tx, m.ID) }); err != nil {
		t.Error(err)
	}
	if _, err := inbox.Bulk(ctx, b.pool, consumer, messages("n", 3), func(tx pgx.Tx, _ []inbox.Message) error { return check(tx, "") }); err != nil {
		t.Error(err)
	}
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if inbox.Context(tx) != context.Background() {
			t.Error("a tx of another has a context")
		}
		_, err := inbox.HandleTx(ctx, tx, consumer, message("joined"), func(tx pgx.Tx) error { return check(tx, "joined") })
		return err
	})
	if err != nil {
		t.Error(err)
	}
	b.wantStates("dddddddd", b.batch(append(append(messages("m", 3), messages("n", 3)...), message("a"), message("joined")), b.record))
}

func TestContext_EndsWithTheCall(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	o, err := inbox.Handle(ctx, b.pool, consumer, message("m"), func(tx pgx.Tx) error {
		cancel()
		return inbox.Context(tx).Err()
	})
	if !errors.Is(err, context.Canceled) || o.State != inbox.Retry {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestObservers_NestTheirContexts(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var lines []string
	opts := []inbox.Option{inbox.WithObserver(recordingObserver{"a", &lines}), inbox.WithObserver(nil), inbox.WithObserver(inbox.LogObserver(slog.New(slog.DiscardHandler))), inbox.WithObserver(recordingObserver{"b", &lines})}
	b.batch([]inbox.Message{traced("1"), message("2")}, func(tx pgx.Tx, m inbox.Message) error {
		if got := inbox.Context(tx).Value(nameKey{}); got != "ab" {
			t.Errorf("the context has %v", got)
		}
		if m.ID == "2" {
			panic("at the disco")
		}
		return nil
	}, opts...)
	want := []string{
		"a: begins billing 1 [{00-1 a=b}]", "b: begins billing 1 [{00-1 a=b}]", "b: ends ab <nil>", "a: ends a <nil>",
		"a: begins billing 1 []", "b: begins billing 1 []", "b: ends ab inbox: the handler ended its goroutine", "a: ends a inbox: the handler ended its goroutine",
		"a: begins billing 1 [{00-1 a=b}]", "b: begins billing 1 [{00-1 a=b}]", "b: ends ab <nil>", "a: ends a <nil>", // without the other one
		"b: 1 done", "a: 1 done",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

func TestLogObserver_LogsNoPersonalData(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var log bytes.Buffer
	observed := inbox.WithObserver(inbox.LogObserver(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	secret := errors.New("the card of Ada Lovelace")
	fails := func(pgx.Tx, inbox.Message) error { return secret }
	line := func(level string, parts ...string) {
		t.Helper()
		got := log.String()
		for _, part := range append(parts, "level="+level, "consumer=billing") {
			if !strings.Contains(got, part) {
				t.Errorf("%q is not in %s", part, got)
			}
		}
		if strings.Contains(got, "Ada") || strings.Contains(got, "a-message") {
			t.Errorf("it says too much: %s", got)
		}
		log.Reset()
	}
	b.batch([]inbox.Message{message("a-message")}, b.record, observed)
	line("DEBUG", "messages=1", "done=1", "transactions=1")
	b.batch([]inbox.Message{message("a-message-b")}, fails, observed)
	line("INFO", "failures=1", "retried=1")
	b.batch([]inbox.Message{message("a-message-c")}, fails, observed, inbox.WithMaxAttempts(1))
	line("ERROR", "died=1")
	b.batch(messages("a-message-d", 2), fails, observed, inbox.WithCircuit(3, time.Hour))
	line("WARN", "paused=1")
}
