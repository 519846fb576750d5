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

// tables are the effects, in their order, and what a COMMIT can fail of.
const tables = `
CREATE TABLE inboxtest_effects (n bigint GENERATED ALWAYS AS IDENTITY, id text NOT NULL);
CREATE TABLE inboxtest_known (id text PRIMARY KEY);
CREATE TABLE inboxtest_owed (id text REFERENCES inboxtest_known DEFERRABLE INITIALLY DEFERRED)`

// books are a Source and the effects of its messages.
type books struct {
	Source
	t        testing.TB
	pool     *pgxpool.Pool
	patience time.Duration
}

func (s Suite) open(t testing.TB) *books {
	t.Helper()
	b := &books{t: t, pool: s.Pool(t), patience: s.Patience}
	if _, err := b.pool.Exec(t.Context(), tables); err != nil {
		t.Fatalf("inboxtest: %v", err)
	}
	if b.Source = s.New(t, b.pool); b.Name == "" || b.Deliver == nil || b.Run == nil {
		t.Fatal("inboxtest: a Source needs a Name, Deliver and Run")
	}
	if b.patience <= 0 {
		b.patience = time.Minute
	}
	return b
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

// effect is what a handler does.
func effect(tx pgx.Tx, m inbox.Message) error {
	_, err := tx.Exec(inbox.Context(tx), `INSERT INTO inboxtest_effects (id) VALUES ($1)`, m.ID)
	return err
}

func (b *books) deliver(messages ...inbox.Message) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), b.patience)
	defer cancel()
	if err := b.Deliver(ctx, messages...); err != nil {
		b.t.Fatalf("inboxtest: Deliver: %v", err)
	}
}

// run runs a consumer until stop is called, which fails if it does not end.
func (b *books) run(handle Handle, options ...inbox.Option) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	b.t.Cleanup(cancel)
	return b.runIn(ctx, cancel, handle, options...)
}

func (b *books) runIn(ctx context.Context, cancel func(), handle Handle, options ...inbox.Option) (stop func()) {
	ended := make(chan struct{})
	options = slices.Clip(append(options, inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond))) // a consumer may add to them
	go func() {
		defer close(ended)
		if err := b.Run(ctx, handle, options...); err != nil && ctx.Err() == nil {
			b.t.Errorf("the consumer has ended by itself: %v", err)
		}
	}()
	return func() {
		b.t.Helper()
		cancel()
		select {
		case <-ended:
		case <-time.After(b.patience):
			b.t.Fatal("the context of the consumer has ended, and it goes on")
		}
	}
}

// effects returns the ids of the messages that have had their effects, in order.
func (b *books) effects() []string {
	b.t.Helper()
	rows, _ := b.pool.Query(b.t.Context(), `SELECT id FROM inboxtest_effects ORDER BY n`)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatalf("inboxtest: %v", err)
	}
	return ids
}

// await waits until each of these messages has had its effect.
func (b *books) await(messages ...inbox.Message) {
	b.t.Helper()
	b.eventually(func() string {
		met := map[string]bool{}
		for _, id := range b.effects() {
			met[id] = true
		}
		missing := 0
		for _, m := range messages {
			if !met[m.ID] {
				missing++
			}
		}
		if missing == 0 {
			return ""
		}
		return fmt.Sprintf("%d of %d messages have no effect", missing, len(messages))
	})
}

// eventually asks until nothing is wrong.
func (b *books) eventually(wrong func() string) {
	b.t.Helper()
	for end := time.Now().Add(b.patience); ; time.Sleep(10 * time.Millisecond) {
		what := wrong()
		if what == "" {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("after %v %s", b.patience, what)
		}
	}
}

// once looks whether each of these messages has had its effect once.
func (b *books) once(messages ...inbox.Message) {
	b.t.Helper()
	times := map[string]int{}
	for _, id := range b.effects() {
		times[id]++
	}
	for _, m := range messages {
		if times[m.ID] != 1 {
			b.t.Errorf("a message has had its effect %d times", times[m.ID])
		}
	}
}

// settle handles another message behind all others, stops the consumer, and looks whether the broker has any other one left.
func (b *books) settle(stop func()) {
	b.t.Helper()
	last := message("last")
	b.deliver(last)
	b.await(last)
	b.nothingLeft()
	stop()
	b.nothingLeft()
}

// nothingLeft waits until the broker has nothing left but one message, the last, whose acknowledgement a stop may have cut off.
func (b *books) nothingLeft() {
	b.t.Helper()
	if b.Left == nil {
		return
	}
	b.eventually(func() string {
		left, err := b.Left(b.t.Context())
		if err != nil || left > 1 {
			return fmt.Sprintf("%d messages are left in the broker: %v", left, err)
		}
		return ""
	})
}

// same compares what a handler was given with what was delivered.
func (b *books) same(delivered, given inbox.Message) {
	b.t.Helper()
	if b.Carried != nil {
		b.Carried(&delivered)
	}
	if diff := cmp.Diff(delivered, given, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(given, "Source", "Deliveries")); diff != "" {
		b.t.Errorf("what the handler is given is not what was delivered (-delivered +given):\n%s", diff)
	}
}

func (b *books) dead() (letters []inbox.DeadLetter) {
	b.t.Helper()
	for letter, err := range inbox.List(b.t.Context(), b.pool, inbox.Ref{Consumer: b.Name}) {
		if err != nil {
			b.t.Fatalf("inboxtest: %v", err)
		}
		letters = append(letters, letter)
	}
	return letters
}
