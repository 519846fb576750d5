package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

// rules are the promises of a consumer, with the functions that check them.
var rules = []struct {
	name  string
	check func(t testing.TB, s Suite)
}{
	{"HandlesEachMessageOnce", handlesOnce},
	{"StopsAndResumes", stopsAndResumes},
	{"AcknowledgesAfterCommit", acknowledgesAfterCommit},
	{"RetriesAFailedMessage", retries},
	{"DeadLettersAFailingMessage", deadLetters},
	{"HandlesRedrivenDeadLetters", redrives},
	{"KeepsTheOrderOfAKey", keepsOrder},
}

var errHandler = errors.New("the amount is negative")

// attempts counts the attempts at each message.
type attempts struct {
	mu   sync.Mutex
	byID map[string]int
}

func (a *attempts) add(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byID == nil {
		a.byID = map[string]int{}
	}
	a.byID[id]++
	return a.byID[id]
}

func (a *attempts) of(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byID[id]
}

func handlesOnce(t testing.TB, s Suite) {
	h := s.open(t)
	sent := messages(30)
	sent[1].Key, sent[2].Type, sent[3].Headers, sent[4].Payload = "", "", nil, nil
	sent[5].Key, sent[6].Payload = "ключ/ü a", []byte("\x00\xff\r\n")
	sent[7].Headers = map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
	var mu sync.Mutex
	got := map[string]inbox.Message{}
	h.deliver(sent...)
	h.deliver(sent[:15]...)
	stop := h.run(func(tx pgx.Tx, m inbox.Message) error {
		if of, ok := inbox.MessageOf(inbox.Context(tx)); !ok || of.ID != m.ID {
			t.Errorf("inbox.MessageOf returns another message than the handler got")
		}
		mu.Lock()
		got[m.ID] = m
		mu.Unlock()
		return effect(tx, m)
	})
	h.await(sent...)
	h.deliver(sent[10:]...)
	h.finish(stop)
	h.wantOnce(sent...)
	for _, m := range sent {
		h.wantSame(m, got[m.ID])
	}
	h.wantNoneDead()
}

// stopsAndResumes stops a consumer three times, each time during a call of its handler.
func stopsAndResumes(t testing.TB, s Suite) {
	h := s.open(t)
	sent := messages(30)
	h.deliver(sent...)
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		begun := make(chan struct{})
		var calls atomic.Int64
		stop := h.runIn(ctx, cancel, func(tx pgx.Tx, m inbox.Message) error {
			err := effect(tx, m)
			n := calls.Add(1)
			if n == 5 {
				close(begun)
			}
			if n >= 5 {
				<-ctx.Done()
				return ctx.Err()
			}
			return err
		}, inbox.WithMaxAttempts(1))
		h.awaitSignal(begun)
		stop()
	}
	stop := h.run(effect, inbox.WithMaxAttempts(1))
	h.await(sent...)
	h.finish(stop)
	h.wantOnce(sent...)
	h.wantNoneDead() // a stop does not count as an attempt
}

// acknowledgesAfterCommit makes the COMMIT of two messages fail. For each of them the handler
// inserts a row with a deferred foreign key. The test inserts the referenced rows later.
func acknowledgesAfterCommit(t testing.TB, s Suite) {
	h := s.open(t)
	sent := messages(10)
	h.deliver(sent...)
	tried := make(chan struct{})
	var calls atomic.Int64
	stop := h.run(func(tx pgx.Tx, m inbox.Message) error {
		err := effect(tx, m)
		if err == nil && slices.Contains([]string{sent[2].ID, sent[7].ID}, m.ID) {
			_, err = tx.Exec(inbox.Context(tx), `INSERT INTO inboxtest_owed VALUES ($1)`, m.ID)
			if calls.Add(1) == 6 {
				close(tried)
			}
		}
		return err
	}, inbox.WithMaxAttempts(1000))
	h.awaitSignal(tried)
	if _, err := h.pool.Exec(t.Context(), `INSERT INTO inboxtest_known VALUES ($1), ($2)`, sent[2].ID, sent[7].ID); err != nil {
		t.Fatalf("inboxtest: cannot insert the rows: %v", err)
	}
	h.await(sent...)
	h.finish(stop)
	h.wantOnce(sent...)
}

func retries(t testing.TB, s Suite) {
	h := s.open(t)
	sent := messages(10)
	h.deliver(sent...)
	var tried attempts
	stop := h.run(func(tx pgx.Tx, m inbox.Message) error {
		err := effect(tx, m)
		if m.ID == sent[3].ID && tried.add(m.ID) < 4 {
			return errHandler
		}
		return err
	}, inbox.WithMaxAttempts(5))
	h.await(sent...)
	h.finish(stop)
	h.wantOnce(sent...)
	h.wantNoneDead()
}

// deadLetters uses a handler that always fails for two messages, and always panics for a third
// message.
func deadLetters(t testing.TB, s Suite) {
	h := s.open(t)
	sent := messages(15)
	failing := map[string]inbox.Message{sent[0].ID: sent[0], sent[7].ID: sent[7], sent[8].ID: sent[8]}
	h.deliver(sent...)
	var tried attempts
	stop := h.run(func(tx pgx.Tx, m inbox.Message) error {
		if failing[m.ID].ID == "" {
			return effect(tx, m)
		}
		if tried.add(m.ID); m.ID == sent[7].ID {
			panic("a bug")
		}
		return errors.Join(effect(tx, m), errHandler)
	}, inbox.WithMaxAttempts(3))
	isFailing := func(m inbox.Message) bool { return failing[m.ID].ID != "" }
	good := slices.DeleteFunc(slices.Clone(sent), isFailing)
	h.await(good...)
	h.awaitDead(len(failing))
	h.finish(stop)
	h.wantOnce(good...)
	for _, letter := range h.dead() {
		shown, err := inbox.Show(t.Context(), h.pool, letter.Ref())
		if err != nil {
			t.Fatalf("inboxtest: cannot show a dead letter: %v", err)
		}
		h.wantSame(failing[letter.ID], shown.Message)
		if n := tried.of(letter.ID); letter.Attempts != 3 || n != 3 {
			t.Errorf("a dead letter has %d attempts, and its handler was called %d times, want 3", letter.Attempts, n)
		}
	}
	if slices.ContainsFunc(h.effects(), func(id string) bool { return failing[id].ID != "" }) {
		t.Error("a dead letter had an effect")
	}
}

// redrives redrives a dead letter while no consumer runs. A running consumer would find the
// redriven message only after some time.
func redrives(t testing.TB, s Suite) {
	h := s.open(t)
	sent := message("a")
	h.deliver(sent)
	stop := h.run(func(pgx.Tx, inbox.Message) error { return errHandler }, inbox.WithMaxAttempts(1))
	h.awaitDead(1)
	letter := h.dead()[0]
	h.deliver(message("b")) // when message b is a dead letter, the delivery of message a is acknowledged
	h.awaitDead(2)
	stop()
	if err := inbox.Redrive(t.Context(), h.pool, letter.Ref()); err != nil {
		t.Fatalf("inboxtest: cannot redrive a dead letter: %v", err)
	}
	got := make(chan inbox.Message, 10)
	stop = h.run(func(tx pgx.Tx, m inbox.Message) error {
		got <- m
		return effect(tx, m)
	}, inbox.WithMaxAttempts(1))
	h.await(sent)
	h.wantSame(sent, <-got)
	h.awaitDead(1)
	h.finish(stop)
	h.wantOnce(sent)
}

// keepsOrder uses a handler that fails twice for every seventh message. It stops and restarts the
// consumer once.
func keepsOrder(t testing.TB, s Suite) {
	const keys, each = 4, 25
	h := s.open(t)
	if !h.Ordered {
		return
	}
	want := map[string][]string{}
	key := map[string]string{}
	fails := map[string]bool{}
	var sent []inbox.Message
	for i := range keys * each {
		m := message(fmt.Sprint("key ", i%keys))
		sent, key[m.ID], want[m.Key], fails[m.ID] = append(sent, m), m.Key, append(want[m.Key], m.ID), i%7 == 3
		h.deliver(m)
	}
	var tried attempts
	handle := func(tx pgx.Tx, m inbox.Message) error {
		if fails[m.ID] && tried.add(m.ID) < 3 {
			return errHandler
		}
		return effect(tx, m)
	}
	stop := h.run(handle)
	h.await(sent[:keys]...)
	stop()
	stop = h.run(handle)
	h.await(sent...)
	h.finish(stop)
	got := map[string][]string{}
	for _, id := range h.effects() {
		if k := key[id]; k != "" {
			got[k] = append(got[k], id)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the effects of each key are out of order (-want +got):\n%.2000s", diff)
	}
}
