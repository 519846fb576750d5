package inbox_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/seal"
)

var once = []inbox.Option{inbox.WithMaxAttempts(1)}

func newSealer() *seal.Sealer {
	return seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": []byte("0123456789abcdefghijklmnopqrstuv")}})
}

func TestRedrive_HandlesTheStoredPayload(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]inbox.Option{"plain": once, "sealed": append([]inbox.Option{inbox.WithSealer(newSealer())}, once...)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			ms := messages("m", 3)
			b.wantStates("XXX", b.batch(ms, b.failing("m-0000", "m-0001", "m-0002"), opts...))
			b.redrive("m-0001", "m-0002")
			got, outcomes, err := inbox.HandleRedrives(t.Context(), b.pool, consumer, 10, b.failing("m-0002"), opts...)
			if err != nil {
				t.Fatal(err)
			}
			b.wantStates("DX", outcomes)
			if diff := cmp.Diff(redelivered(ms[1:]), got); diff != "" {
				t.Error(diff)
			}
			b.wantEffects("m-0001")
			if n := b.count(`select count(*) from idem.dead_letters where redrive_at is null`); n != 2 {
				t.Errorf("%d dead letters are left, want 2", n)
			}
			if got, _, err := inbox.HandleRedrives(t.Context(), b.pool, consumer, 10, b.record, opts...); err != nil || len(got) != 0 {
				t.Errorf("%v, %v", got, err)
			}
			b.wantStates("XdX", b.batch(ms, b.record, opts...))
		})
	}
}

// A delivery handles a redriven message as well. A dead letter whose row is purged is handled once.
func TestRedrive_HandlesOnce(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.batch(messages("m", 2), b.failing("m-0000", "m-0001"), once...)
	b.redrive("m-0000")
	b.wantStates("D", b.batch(messages("m", 1), b.record))
	b.exec(`delete from idem.inbox where id = 'm-0001'`)
	b.redrive("m-0001")
	for _, want := range []int{1, 0} {
		got, _, err := inbox.HandleRedrives(t.Context(), b.pool, consumer, 10, b.record)
		if err != nil || len(got) != want {
			t.Errorf("%v, %v", got, err)
		}
	}
	b.wantOnce(2)
	if n := b.count(`select count(*) from idem.dead_letters`); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
}

func (b *fixture) redrive(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		if err := inbox.Redrive(context.Background(), b.pool, ref(id)); err != nil {
			b.t.Fatal(err)
		}
	}
}

// A redriven message is the last of its key, and blocks it like any other message until it is
// handled, dead or dropped.
func TestDrop_UnblocksTheKeyOfARedrivenMessage(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	opts := append([]inbox.Option{inbox.WithOrder()}, once...)
	b.wantStates("XD", b.batch(keyed("a1", "a2"), b.failing("a1"), opts...))
	b.redrive("a1")
	b.wantStates("R", b.batch(keyed("a3"), b.record, opts...))
	if err := inbox.Drop(t.Context(), b.pool, ref("a1")); err != nil {
		t.Fatal(err)
	}
	b.wantStates("D", b.batch(keyed("a3"), b.record, opts...))
	b.wantStates("X", b.batch(keyed("a1"), b.record, opts...))
	if got, _, err := inbox.HandleRedrives(t.Context(), b.pool, consumer, 10, b.record, opts...); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	b.wantEffects("a2", "a3")
}

// Either the message has its effect, or it is dropped and has none.
func TestDrop_WaitsForARedriveInProgress(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for id, test := range map[string]struct{ end, want error }{"handled": {nil, inbox.ErrNoDeadLetter}, "failed": {errPoison, nil}} {
		b.wantStates("X", b.batch([]inbox.Message{message(id)}, b.failing(id), once...))
		b.redrive(id)
		dropped := make(chan error, 1)
		_, _, err := inbox.HandleRedrives(t.Context(), b.pool, consumer, 10, func(tx pgx.Tx, m inbox.Message) error {
			go func() { dropped <- inbox.Drop(context.Background(), b.pool, ref(m.ID)) }()
			b.awaitBlocked(1)
			return errors.Join(b.record(tx, m), test.end)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := await(t, "Drop", dropped); !errors.Is(err, test.want) {
			t.Errorf("%s: Drop: %v, want %v", id, err, test.want)
		}
		if n := b.count(`select count(*) from idem.dead_letters`) + b.count(`select count(*) from idem.inbox where state = 'failing'`); n != 0 {
			t.Errorf("%s: %d rows are left", id, n)
		}
	}
}

func TestRedrive_CountsAttemptsAnew(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.batch(messages("m", 1), b.failing("m-0000"), once...)
	b.redrive("m-0000")
	for _, want := range []string{"R", "X"} {
		_, outcomes, err := inbox.HandleRedrives(t.Context(), b.pool, consumer, 10, b.failing("m-0000"), inbox.WithMaxAttempts(2))
		if b.wantStates(want, outcomes); err != nil {
			t.Error(err)
		}
		b.due()
	}
}

func TestRunRedrives_LogsAMessageThatDiesAgain(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.batch(messages("m", 1), b.failing("m-0000"), once...)
	b.redrive("m-0000")
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { stop(); return a }}))
	err := inbox.RunRedrives(ctx, b.pool, consumer, b.failing("m-0000"), inbox.RedriveConfig{Options: once, Logger: logger})
	if text := log.String(); err != nil || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "dead letter again") || !strings.Contains(text, "message=m-0000") {
		t.Errorf("logged %q, %v", text, err)
	}
}

// Messages that are not due do not use up the limit.
func TestHandleRedrives_TakesDueMessagesWithinALimit(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := messages("m", 5)
	ms[3].Payload, ms[4].Payload = make([]byte, 16<<20), make([]byte, 1)
	var ids []string
	for _, m := range ms {
		ids = append(ids, m.ID)
	}
	b.wantStates("XXXXX", b.batch(ms, b.failing(ids...), once...))
	b.redrive(ids...)
	handle := func(limit int, fn func(pgx.Tx, inbox.Message) error) int {
		got, _, err := inbox.HandleRedrives(t.Context(), b.pool, consumer, limit, fn, inbox.WithBackoff(time.Hour, time.Hour))
		if err != nil {
			t.Error(err)
		}
		return len(got)
	}
	if n := handle(2, b.failing(ids...)); n != 2 {
		t.Errorf("%d were tried, want 2", n)
	}
	for _, want := range []int{2, 1, 0} { // the fourth message reaches the limit of 16 MiB
		if n := handle(10, b.record); n != want {
			t.Errorf("%d were tried, want %d", n, want)
		}
	}
	b.wantEffects(ids[2:]...)
}

func TestReadStats_CountsByConsumer(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.batch(messages("d", 2), b.failing("d-0000", "d-0001"), once...)
	b.batch(messages("f", 4), b.failing("f-0001"))
	if _, err := inbox.Batch(t.Context(), b.pool, "mail", messages("f", 1), b.failing("f-0000")); err != nil {
		t.Fatal(err)
	}
	got, err := inbox.ReadStats(t.Context(), b.pool)
	if err != nil || len(got) != 2 || got[0].FailingSince.IsZero() || got[0].DeadSince.IsZero() || !got[1].DeadSince.IsZero() {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range got {
		got[i].FailingSince, got[i].DeadSince = time.Time{}, time.Time{}
	}
	want := []inbox.Stats{{Consumer: consumer, Failing: 1, Dead: 2}, {Consumer: "mail", Failing: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHandleTx_JoinsTheTransaction(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	handle := func(tx pgx.Tx, id string, end error) (inbox.Outcome, error) {
		return inbox.HandleTx(t.Context(), tx, consumer, message(id), func(tx pgx.Tx) error { return errors.Join(b.recordID(id)(tx), end) })
	}
	for _, want := range []inbox.State{inbox.Done, inbox.Duplicate} {
		if o, err := handle(tx, "a", nil); err != nil || o.State != want {
			t.Errorf("%+v, %v", o, err)
		}
	}
	if o, err := handle(tx, "b", errPoison); !errors.Is(err, errPoison) || o.State != inbox.Retry {
		t.Errorf("%+v, %v", o, err)
	}
	b.wantStates("R", b.batch([]inbox.Message{message("c")}, b.failing("c")))
	if o, err := handle(tx, "c", nil); err != nil || o.State != inbox.Retry || !errors.Is(o.Err, inbox.ErrWaiting) {
		t.Errorf("not due: %+v, %v", o, err)
	}
	b.due()
	if o, err := handle(tx, "c", nil); err != nil || o.State != inbox.Done {
		t.Errorf("%+v, %v", o, err)
	}
	b.wantEffects()
	other, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback(t.Context())
	if o, err := handle(other, "a", nil); err != nil || o.State != inbox.Retry || !errors.Is(o.Err, inbox.ErrElsewhere) {
		t.Errorf("elsewhere: %+v, %v", o, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantEffects("a", "c")
	m := message("a")
	m.Payload = nil
	if _, err := inbox.HandleTx(t.Context(), other, consumer, m, b.recordID("a")); !errors.Is(err, inbox.ErrMismatch) {
		t.Errorf("err = %v", err)
	}
	if o, err := handle(other, "a", nil); err != nil || o.State != inbox.Duplicate {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := inbox.HandleTx(t.Context(), other, consumer, m, b.recordID("a"), inbox.WithOrder()); err == nil {
		t.Error("WithOrder is not refused")
	}
}

func TestRedrive_AndDropAreAudited(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.wantStates("X", b.batch(messages("m", 1), b.failing("m-0000"), once...))
	ctx := idem.WithReason(idem.WithPerson(t.Context(), "ann"), "INC-7")
	if err := inbox.Redrive(ctx, b.pool, ref("m-0000")); err != nil {
		t.Fatal(err)
	}
	if err := inbox.Drop(ctx, b.pool, ref("m-0000")); err != nil {
		t.Fatal(err)
	}
	_, _ = inbox.Redrive(ctx, b.pool, ref("m-0000")), inbox.Drop(ctx, b.pool, ref("m-0000")) // which is gone
	var got string
	err := b.pool.QueryRow(t.Context(), `select string_agg(concat_ws('|', act, outcome, role = session_user, person, reason, side, consumer, source, message_id), e'\n' order by at) from idem.audit`).Scan(&got)
	want := "redrive|to be tried again|t|ann|INC-7|inbox|" + consumer + "|orders|m-0000\ndrop|deleted|t|ann|INC-7|inbox|" + consumer + "|orders|m-0000"
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
