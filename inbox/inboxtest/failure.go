package inboxtest

import (
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

var errHandler = errors.New("the amount is negative")

// attempts counts the calls of a handler by message.
type attempts struct {
	mu sync.Mutex
	by map[string]int
}

func (a *attempts) add(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == nil {
		a.by = map[string]int{}
	}
	a.by[id]++
	return a.by[id]
}

func triedAgain(t testing.TB, s Suite) {
	b := s.open(t)
	sent := messages(10)
	b.deliver(sent...)
	var tried attempts
	stop := b.run(func(tx pgx.Tx, m inbox.Message) error {
		err := effect(tx, m)
		if m.ID == sent[3].ID && tried.add(m.ID) < 4 {
			return errHandler
		}
		return err
	}, inbox.WithMaxAttempts(5))
	b.await(sent...)
	b.settle(stop)
	b.once(sent...)
	if letters := b.dead(); len(letters) > 0 {
		t.Errorf("there are %d dead letters, one after %d of 5 attempts", len(letters), letters[0].Attempts)
	}
}

// poison has a handler that fails with some messages, and panics with one.
func poison(t testing.TB, s Suite) {
	b := s.open(t)
	sent := messages(15)
	bad := map[string]inbox.Message{sent[0].ID: sent[0], sent[7].ID: sent[7], sent[8].ID: sent[8]}
	b.deliver(sent...)
	var tried attempts
	stop := b.run(func(tx pgx.Tx, m inbox.Message) error {
		if _, ok := bad[m.ID]; !ok {
			return effect(tx, m)
		}
		if tried.add(m.ID); m.ID == sent[7].ID {
			panic("a bug")
		}
		return errors.Join(effect(tx, m), errHandler)
	}, inbox.WithMaxAttempts(3))
	var good []inbox.Message
	for _, m := range sent {
		if _, ok := bad[m.ID]; !ok {
			good = append(good, m)
		}
	}
	b.await(good...)
	b.eventually(func() string {
		if n := len(b.dead()); n != len(bad) {
			return fmt.Sprintf("there are %d dead letters, want %d", n, len(bad))
		}
		return ""
	})
	b.settle(stop)
	b.once(good...)
	for _, letter := range b.dead() {
		whole, err := inbox.Show(t.Context(), b.pool, letter.Ref())
		if err != nil {
			t.Fatalf("inboxtest: %v", err)
		}
		b.same(bad[letter.ID], whole.Message)
		if letter.Attempts != 3 || tried.add(letter.ID)-1 != 3 {
			t.Errorf("a message is a dead letter after %d attempts, and was tried %d times, want 3", letter.Attempts, tried.add(letter.ID)-2)
		}
	}
	if slices.ContainsFunc(b.effects(), func(id string) bool { return bad[id].ID != "" }) {
		t.Error("a dead letter has had an effect")
	}
}

func redriven(t testing.TB, s Suite) {
	b := s.open(t)
	sent := message("a")
	b.deliver(sent)
	var mended atomic.Bool
	given := make(chan inbox.Message, 10)
	stop := b.run(func(tx pgx.Tx, m inbox.Message) error {
		if !mended.Load() {
			return errHandler
		}
		given <- m
		return effect(tx, m)
	}, inbox.WithMaxAttempts(1))
	b.eventually(func() string {
		if len(b.dead()) == 0 {
			return "there is no dead letter"
		}
		return ""
	})
	mended.Store(true)
	letter := b.dead()[0]
	if err := inbox.Redrive(t.Context(), b.pool, letter.Ref()); err != nil {
		t.Fatalf("inboxtest: %v", err)
	}
	b.await(sent)
	b.same(sent, <-given)
	b.eventually(func() string {
		if len(b.dead()) > 0 {
			return "the dead letter is still there"
		}
		return ""
	})
	b.settle(stop)
	b.once(sent)
}

// inOrder has some attempts fail.
func inOrder(t testing.TB, s Suite) {
	const keys, each = 4, 25
	b := s.open(t)
	if !b.Ordered {
		return
	}
	want := map[string][]string{}
	key := map[string]string{}
	fails := map[string]bool{}
	var sent []inbox.Message
	for i := range keys * each {
		m := message(fmt.Sprint("key ", i%keys))
		sent, key[m.ID], want[m.Key], fails[m.ID] = append(sent, m), m.Key, append(want[m.Key], m.ID), i%7 == 3
		b.deliver(m)
	}
	var tried attempts
	stop := b.run(func(tx pgx.Tx, m inbox.Message) error {
		if fails[m.ID] && tried.add(m.ID) < 3 {
			return errHandler
		}
		return effect(tx, m)
	})
	b.await(sent...)
	b.settle(stop)
	got := map[string][]string{}
	for _, id := range b.effects() {
		if k := key[id]; k != "" {
			got[k] = append(got[k], id)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the effects of each key are out of order (-want +got):\n%.2000s", diff)
	}
}
