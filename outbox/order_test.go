package outbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

func (o *office) begin() pgx.Tx {
	o.t.Helper()
	tx, err := o.pool.Begin(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = tx.Rollback(o.t.Context()) })
	return tx
}

func (o *office) in(tx pgx.Tx, messages ...outbox.Message) {
	o.t.Helper()
	if err := outbox.Add(o.t.Context(), tx, messages...); err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) commit(tx pgx.Tx) {
	o.t.Helper()
	if err := tx.Commit(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

func TestMessageThatIsCommittedLateIsNotSkipped(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := &broker{}
	o.relay(b, swift())
	late, reader := o.begin(), o.begin()
	if _, err := reader.Exec(t.Context(), `set transaction isolation level repeatable read; select count(*) from idem.outbox`, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	o.in(late, message("late", "late"))
	for i := range 200 { // places behind it, each taken and left by a look of the relay
		o.add(message("prompt", fmt.Sprint(i)))
		if i%20 == 0 {
			eventually(t, "what was committed first to leave first", func() bool { return b.number() == i+1 })
		}
	}
	eventually(t, "what was committed first to leave first", func() bool { return b.number() == 200 })
	o.commit(late)
	eventually(t, "what was committed late", func() bool { return b.number() == 201 })
	if got := b.types("late"); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// The next message of a key is there before the relay has looked for the late one.
func TestMessageThatIsCommittedLateLeavesBeforeWhatCameAfterItOfItsKey(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := &broker{}
	entered, release := make(chan struct{}), make(chan struct{})
	b.before = func(messages []outbox.Message) error {
		if messages[0].Type == "the relay is here" {
			close(entered)
			<-release
		}
		return nil
	}
	o.relay(b, swift())
	late := o.begin()
	o.in(late, message("a", "late"))
	o.add(message("b", "the relay is here"))
	await(t, "the relay to be past the place of the late one", entered)
	o.commit(late)
	for i := range 5 {
		o.add(message("a", fmt.Sprint("after ", i)))
	}
	close(release)
	o.empty()
	if diff := cmp.Diff([]string{"late", "after 0", "after 1", "after 2", "after 3", "after 4"}, b.types("a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A has its transaction id before B, C keeps the horizon of snapshots back, and B's change of the key comes before A's. Neither
// the order of transaction ids nor that of what all snapshots see is that of the key.
func TestMessagesOfAKeyLeaveInTheOrderInWhichTransactionsHadItsRow(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.exec(`create table account (id text primary key, changes int not null)`)
	o.exec(`insert into account values ('a', 0), ('c', 0)`)
	b := &broker{}
	o.relay(b, swift())
	a, c, second := o.begin(), o.begin(), o.begin()
	for _, tx := range []pgx.Tx{a, c} {
		if _, err := tx.Exec(t.Context(), `select pg_current_xact_id()`); err != nil {
			t.Fatal(err)
		}
	}
	change := func(tx pgx.Tx, what string) {
		t.Helper()
		if _, err := tx.Exec(t.Context(), `update account set changes = changes + 1 where id = 'a'`); err != nil {
			t.Fatal(err)
		}
		o.in(tx, message("a", what))
		o.commit(tx)
	}
	change(second, "B's")
	change(a, "A's")
	eventually(t, "both changes to leave, whatever still has a snapshot", func() bool { return b.number() == 2 })
	o.commit(c)
	if diff := cmp.Diff([]string{"B's", "A's"}, b.types()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The Publisher keeps the order of a key by itself, and says so: then it gets all of a key in one call.
type keeper struct{ broker }

func (*keeper) KeepsOrder() bool { return true }

func (k *keeper) refuseFrom(what string) {
	stuck := map[string]bool{}
	k.refuse = func(m *outbox.Message) error {
		if m.Type == what || stuck[m.Key] {
			stuck[m.Key] = true
			return errRefused
		}
		return nil
	}
}

func TestPublisherThatKeepsOrderGetsAKeyInOneCallAndIsBlamedForTheFirstOnly(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	k := &keeper{}
	k.refuseFrom("a2")
	config := swift()
	config.MaxAttempts = 1
	dead := make(chan outbox.DeadLetter, 10)
	config.OnDead = func(d outbox.DeadLetter) {
		k.refuse = nil
		dead <- d
	}
	o.add(message("a", "a1"), message("a", "a2"), message("a", "a3"), message("a", "a4"), message("b", "b1"))
	o.relay(k, config)
	o.empty()
	if d := await(t, "the dead letter", dead); d.Type != "a2" || len(dead) > 0 {
		t.Errorf("%s is dead, and %d others", d.Type, len(dead))
	}
	if diff := cmp.Diff([]string{"a1", "a3", "a4"}, k.types("a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if k.calls != 2 {
		t.Errorf("%d calls", k.calls)
	}
}

// A transaction takes the place before that of another one, whose transaction id is below its own: the server has completed no
// id beyond that of the open transaction, which is what pg_snapshot_xmax tells.
func TestPlaceOfATransactionWithAYoungerIDIsWaitedFor(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := &broker{}
	o.relay(b, swift())
	elder, late := o.begin(), o.begin()
	if _, err := elder.Exec(t.Context(), `select pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	o.in(late, message("a", "late"))
	o.in(elder, message("b", "elder"))
	o.commit(elder)
	o.empty()
	began := time.Now()
	for i := 0; i < 20 || time.Since(began) < 300*time.Millisecond; i++ { // the relay looks many times
		o.add(message("", fmt.Sprint("beside ", i)))
		o.empty()
	}
	o.commit(late)
	o.add(message("a", "after"))
	eventually(t, "both messages of the key", func() bool { return len(b.types("a")) == 2 })
	if diff := cmp.Diff([]string{"late", "after"}, b.types("a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A broker error after a first call that was small: a part of what was read together has failed, and the rest goes out in other
// calls.
// A Publisher that has no room for a message has room for the next one.
func TestNothingOvertakesAMessageOfItsKeyThatWasNotSent(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	var mu sync.Mutex
	var got []string
	unsent := 0
	publisher := outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
		mu.Lock()
		defer mu.Unlock()
		failed := map[string]error{}
		for _, m := range messages {
			if m.Type == "1" && unsent < 3 {
				unsent++
				failed[m.ID] = outbox.RetryLater(errRefused, 0)
			} else if m.Key == "a" {
				got = append(got, m.Type)
			}
		}
		if len(failed) > 0 {
			return &outbox.PublishError{Failed: failed}
		}
		return nil
	})
	o.add(message("a", "1"), message("a", "2"), message("b", "x"), message("a", "3"), message("b", "y"))
	o.relay(publisher, swift())
	o.empty()
	if diff := cmp.Diff([]string{"1", "2", "3"}, got); diff != "" || unsent != 3 {
		t.Errorf("unsent %d times (-want +got):\n%s", unsent, diff)
	}
}

func TestNothingOvertakesAFailedMessageOfItsKeyInAnotherCall(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	k := &keeper{}
	failed, failing := false, false
	k.before = func([]outbox.Message) error { // the first call fails as a whole, so that the next ones are of four
		failing = false
		if k.calls++; k.calls == 1 {
			return errRefused
		}
		return nil
	}
	k.refuse = func(m *outbox.Message) error { // once, and what is behind it in the same call
		if m.Type == "3" && !failed {
			failed, failing = true, true
		}
		if failing {
			return errRefused
		}
		return nil
	}
	var want []string
	var messages []outbox.Message
	for i := range 8 {
		want = append(want, fmt.Sprint(i+1))
		messages = append(messages, message("a", fmt.Sprint(i+1)))
	}
	o.add(messages...)
	config := swift()
	config.BatchSize = 8
	o.relay(k, config)
	o.empty()
	if diff := cmp.Diff(want, k.types("a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
