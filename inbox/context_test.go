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
	b.wantStates("ddddddd", b.batch(append(append(messages("m", 3), messages("n", 3)...), message("joined")), b.record))
}

func TestObservers_NestTheirContexts(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var lines []string
	m := message("1")
	m.Headers = map[string]string{"Traceparent": "00-1", "tracestate": "a=b"}
	b.batch([]inbox.Message{m}, func(tx pgx.Tx, m inbox.Message) error {
		if got := inbox.Context(tx).Value(nameKey{}); got != "ab" {
			t.Errorf("the context has %v", got)
		}
		panic("at the disco")
	}, inbox.WithObserver(recordingObserver{"a", &lines}), inbox.WithObserver(nil),
		inbox.WithObserver(inbox.LogObserver(slog.New(slog.DiscardHandler))), inbox.WithObserver(recordingObserver{"b", &lines}))
	want := []string{
		"a: begins billing 1 [{00-1 a=b}]", "b: begins billing 1 [{00-1 a=b}]",
		"b: ends ab inbox: the handler ended its goroutine", "a: ends a inbox: the handler ended its goroutine", "b: 0 done", "a: 0 done",
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
	fails := func(pgx.Tx, inbox.Message) error { return errors.New("the card of Ada Lovelace") }
	for i, test := range []struct {
		fn   func(pgx.Tx, inbox.Message) error
		opts []inbox.Option
		want []string
	}{
		{b.record, nil, []string{"level=DEBUG", "messages=2", "done=2", "transactions=1"}},
		{fails, nil, []string{"level=INFO", "failures=2", "retried=2"}},
		{fails, once, []string{"level=ERROR", "died=2"}},
		{fails, []inbox.Option{inbox.WithCircuit(5, time.Hour)}, []string{"level=WARN", "paused=1"}},
	} {
		log.Reset()
		b.batch(messages(fmt.Sprint("a-message-", i), 2), test.fn, append(test.opts, observed)...)
		for _, want := range append(test.want, "consumer=billing") {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%q is not in %s", want, log.String())
			}
		}
		if strings.Contains(log.String(), "Ada") || strings.Contains(log.String(), "a-message") {
			t.Errorf("it says too much: %s", log.String())
		}
	}
}
