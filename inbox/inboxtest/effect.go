package inboxtest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

func effectOnce(t testing.TB, s Suite) {
	b := s.open(t)
	sent := messages(30)
	sent[1].Key, sent[2].Type, sent[3].Headers, sent[4].Payload = "", "", nil, nil
	sent[5].Key, sent[6].Payload = "ключ/ü a", []byte("\x00\xff\r\n")
	sent[7].Headers = map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
	var mu sync.Mutex
	given := map[string]inbox.Message{}
	b.deliver(sent...)
	b.deliver(sent[:15]...)
	stop := b.run(func(tx pgx.Tx, m inbox.Message) error {
		if known, ok := inbox.MessageOf(inbox.Context(tx)); !ok || known.ID != m.ID {
			t.Errorf("inbox.MessageOf the context of a handler is not its message")
		}
		mu.Lock()
		given[m.ID] = m
		mu.Unlock()
		return effect(tx, m)
	})
	b.await(sent...)
	b.deliver(sent[10:]...)
	b.settle(stop)
	b.once(sent...)
	for _, m := range sent {
		b.same(m, given[m.ID])
	}
	if letters := b.dead(); len(letters) > 0 {
		t.Errorf("there are %d dead letters, one because of: %s", len(letters), letters[0].Reason)
	}
}

// stopped stops a consumer while its handler is at work, three times.
func stopped(t testing.TB, s Suite) {
	b := s.open(t)
	sent := messages(30)
	b.deliver(sent...)
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		begun := make(chan struct{})
		var calls atomic.Int64
		stop := b.runIn(ctx, cancel, func(tx pgx.Tx, m inbox.Message) error {
			err := effect(tx, m)
			n := calls.Add(1)
			if n == 5 {
				close(begun)
			}
			if n >= 5 {
				<-ctx.Done() // which is that of the process
				return ctx.Err()
			}
			return err
		}, inbox.WithMaxAttempts(1))
		await(b, begun)
		stop()
	}
	stop := b.run(effect, inbox.WithMaxAttempts(1))
	b.await(sent...)
	b.settle(stop)
	b.once(sent...)
	if letters := b.dead(); len(letters) > 0 {
		t.Errorf("%d messages have died of the end of a process, one because of: %s", len(letters), letters[0].Reason)
	}
}

func await(b *books, signal <-chan struct{}) {
	b.t.Helper()
	b.eventually(func() string {
		select {
		case <-signal:
			return ""
		default:
			return "no handler was called that should have been"
		}
	})
}

// afterCommit has the COMMIT of some messages fail, for as long as something is not there.
func afterCommit(t testing.TB, s Suite) {
	b := s.open(t)
	sent := messages(10)
	b.deliver(sent...)
	tried := make(chan struct{})
	var calls atomic.Int64
	stop := b.run(func(tx pgx.Tx, m inbox.Message) error {
		err := effect(tx, m)
		if err == nil && slices.Contains([]string{sent[2].ID, sent[7].ID}, m.ID) {
			_, err = tx.Exec(inbox.Context(tx), `INSERT INTO inboxtest_owed VALUES ($1)`, m.ID)
			if calls.Add(1) == 6 {
				close(tried)
			}
		}
		return err
	}, inbox.WithMaxAttempts(1000))
	await(b, tried)
	if _, err := b.pool.Exec(t.Context(), `INSERT INTO inboxtest_known VALUES ($1), ($2)`, sent[2].ID, sent[7].ID); err != nil {
		t.Fatalf("inboxtest: %v", err)
	}
	b.await(sent...)
	b.settle(stop)
	b.once(sent...)
}
