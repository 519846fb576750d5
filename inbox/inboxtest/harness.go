package inboxtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// tables creates a table that stores the effects in their order. It also creates two tables with a
// deferred constraint, which can make a COMMIT fail.
const tables = `
CREATE TABLE inboxtest_effects (n bigint GENERATED ALWAYS AS IDENTITY, id text NOT NULL);
CREATE TABLE inboxtest_known (id text PRIMARY KEY);
CREATE TABLE inboxtest_owed (id text REFERENCES inboxtest_known DEFERRABLE INITIALLY DEFERRED)`

// harness contains a Source, and the database with the effects of its messages.
type harness struct {
	Source
	t        testing.TB
	pool     *pgxpool.Pool
	patience time.Duration
}

func (s Suite) open(t testing.TB) *harness {
	t.Helper()
	h := &harness{t: t, pool: s.Pool(t), patience: s.Patience}
	if _, err := h.pool.Exec(t.Context(), tables); err != nil {
		t.Fatalf("inboxtest: cannot create the tables: %v", err)
	}
	if h.Source = s.New(t, h.pool); h.Name == "" || h.Deliver == nil || h.Run == nil {
		t.Fatal("inboxtest: Name, Deliver or Run of the Source is not set; set all of them")
	}
	if h.patience <= 0 {
		h.patience = time.Minute
	}
	return h
}

func message(key string) inbox.Message {
	id := outbox.NewID()
	return inbox.Message{ID: id, Key: key, Type: "Said", Headers: map[string]string{"Tenant": "7"}, Payload: []byte("payload of " + id)}
}

func messages(n int) []inbox.Message {
	all := make([]inbox.Message, n)
	for i := range all {
		all[i] = message(fmt.Sprint("key ", i))
	}
	return all
}

// effect is a handler that inserts the ID of the message into the table of effects.
func effect(tx pgx.Tx, m inbox.Message) error {
	_, err := tx.Exec(inbox.Context(tx), `INSERT INTO inboxtest_effects (id) VALUES ($1)`, m.ID)
	return err
}

func (h *harness) deliver(messages ...inbox.Message) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), h.patience)
	defer cancel()
	if err := h.Deliver(ctx, messages...); err != nil {
		h.t.Fatalf("inboxtest: Deliver: %v", err)
	}
}

// run runs a consumer until stop is called. stop fails the test if Run does not return in time.
func (h *harness) run(handle Handle, options ...inbox.Option) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	h.t.Cleanup(cancel)
	return h.runIn(ctx, cancel, handle, options...)
}

func (h *harness) runIn(ctx context.Context, cancel func(), handle Handle, options ...inbox.Option) (stop func()) {
	ended := make(chan struct{})
	options = slices.Clip(append(options, inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond))) // a consumer may append to the slice
	go func() {
		defer close(ended)
		if err := h.Run(ctx, handle, options...); err != nil && ctx.Err() == nil {
			h.t.Errorf("Run returned before the end of its context: %v", err)
		}
	}()
	return func() {
		h.t.Helper()
		cancel()
		select {
		case <-ended:
		case <-time.After(h.patience):
			h.t.Fatal("Run did not return after the end of its context")
		}
	}
}

// effects returns the IDs of the messages in the order of their effects.
func (h *harness) effects() []string {
	h.t.Helper()
	rows, _ := h.pool.Query(h.t.Context(), `SELECT id FROM inboxtest_effects ORDER BY n`)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		h.t.Fatalf("inboxtest: cannot read the effects: %v", err)
	}
	return ids
}

// await waits until each of the given messages has had its effect.
func (h *harness) await(messages ...inbox.Message) {
	h.t.Helper()
	h.eventually(func() (problem string) {
		effects, missing := h.effects(), 0
		for _, m := range messages {
			if !slices.Contains(effects, m.ID) {
				missing++
			}
		}
		if missing > 0 {
			problem = fmt.Sprintf("%d of %d messages have no effect", missing, len(messages))
		}
		return problem
	})
}

// eventually calls check repeatedly until it returns "". After a time limit it fails the test with
// the last result.
func (h *harness) eventually(check func() (problem string)) {
	h.t.Helper()
	for end := time.Now().Add(h.patience); ; time.Sleep(10 * time.Millisecond) {
		problem := check()
		if problem == "" {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("after %v: %s", h.patience, problem)
		}
	}
}

// wantOnce checks that each of the given messages has had its effect exactly once.
func (h *harness) wantOnce(messages ...inbox.Message) {
	h.t.Helper()
	times := map[string]int{}
	for _, id := range h.effects() {
		times[id]++
	}
	for _, m := range messages {
		if times[m.ID] != 1 {
			h.t.Errorf("a message had its effect %d times, want once", times[m.ID])
		}
	}
}

// finish delivers one more message, waits for its effect, stops the consumer, and checks that the
// broker is empty.
func (h *harness) finish(stop func()) {
	h.t.Helper()
	last := message("last")
	h.deliver(last)
	h.await(last)
	h.wantEmpty()
	stop()
	h.wantEmpty()
}

// wantEmpty waits until the broker has at most one message. One is allowed because the stop of the
// consumer may have prevented the acknowledgment of the last message.
func (h *harness) wantEmpty() {
	h.t.Helper()
	if h.Left == nil {
		return
	}
	h.eventually(func() string {
		left, err := h.Left(h.t.Context())
		if err != nil || left > 1 {
			return fmt.Sprintf("%d messages are left in the broker: %v", left, err)
		}
		return ""
	})
}

// wantSame checks that the handler received the message as it was delivered.
func (h *harness) wantSame(delivered, got inbox.Message) {
	h.t.Helper()
	if h.Carried != nil {
		h.Carried(&delivered)
	}
	if diff := cmp.Diff(delivered, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(got, "Source", "Deliveries")); diff != "" {
		h.t.Errorf("the handler got another message than was delivered (-delivered +got):\n%s", diff)
	}
}

func (h *harness) dead() (letters []inbox.DeadLetter) {
	h.t.Helper()
	for letter, err := range inbox.List(h.t.Context(), h.pool, inbox.Ref{Consumer: h.Name}) {
		if err != nil {
			h.t.Fatalf("inboxtest: cannot list the dead letters: %v", err)
		}
		letters = append(letters, letter)
	}
	return letters
}

func (h *harness) wantNoneDead() {
	h.t.Helper()
	if letters := h.dead(); len(letters) > 0 {
		h.t.Errorf("%d messages are dead letters, one after %d attempts: %s", len(letters), letters[0].Attempts, letters[0].Reason)
	}
}

func (h *harness) awaitDead(n int) {
	h.t.Helper()
	h.eventually(func() string {
		if got := len(h.dead()); got != n {
			return fmt.Sprintf("%d dead letters, want %d", got, n)
		}
		return ""
	})
}

// awaitSignal waits until a handler has closed signal.
func (h *harness) awaitSignal(signal <-chan struct{}) {
	h.t.Helper()
	h.eventually(func() string {
		select {
		case <-signal:
			return ""
		default:
			return "the expected calls of the handler did not happen"
		}
	})
}
