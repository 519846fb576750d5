package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/outbox"
)

// delayed returns a message with a NotBefore.
func delayed(key, what string, notBefore time.Time) outbox.Message {
	m := message(key, what)
	m.NotBefore = notBefore
	return m
}

// now returns the time by the clock of the database.
func (o *database) now() (now time.Time) {
	o.t.Helper()
	if err := o.pool.QueryRow(context.Background(), `select clock_timestamp()`).Scan(&now); err != nil {
		o.t.Fatal(err)
	}
	return now
}

// becomeDue makes all delayed messages due.
func (o *database) becomeDue() {
	o.t.Helper()
	o.exec(`update idem.delayed set not_before = clock_timestamp() - interval '1 hour' + seq * interval '1 microsecond'`)
}

func TestDelayed_PublishesAMessageWhenItIsDue(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	var early []string
	due := map[string]time.Time{}
	b := &broker{before: func(messages []outbox.Message) error {
		for _, m := range messages {
			if at := o.now(); at.Before(due[m.Type]) {
				early = append(early, fmt.Sprint(m.Type, " by ", due[m.Type].Sub(at)))
			}
		}
		return nil
	}}
	tomorrow := o.now().Add(24 * time.Hour)
	var messages []outbox.Message
	for i := range 4 {
		messages = append(messages, delayed("a", fmt.Sprint(i), tomorrow))
	}
	o.add(append(messages, message("a", "at once"), delayed("a", "past", o.now().Add(-time.Hour)))...)
	if n := o.waiting(); n != 2 {
		t.Errorf("%d messages wait to leave at once", n)
	}
	// The due times are set now: on a slow machine some would be in the past after Add.
	o.exec(`update idem.delayed set not_before = statement_timestamp() + (4 - type::int) * interval '300 ms'`)
	for i := range 4 {
		var at time.Time
		if err := o.pool.QueryRow(t.Context(), `select not_before from idem.delayed where type = $1`, fmt.Sprint(i)).Scan(&at); err != nil {
			t.Fatal(err)
		}
		due[fmt.Sprint(i)] = at
	}
	o.relay(b, swift())
	eventually(t, "all of them", func() bool { return b.number() == 6 })
	if diff := cmp.Diff([]string{"at once", "past", "3", "2", "1", "0"}, b.types()); diff != "" || len(early) > 0 {
		t.Errorf("early: %v (-want +got):\n%s", early, diff)
	}
	o.empty()
	if n := o.count(`select count(*) from idem.delayed`); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// The last query has told the relay when the next message is due, so it does not wait for Poll.
func TestDelayed_WakesTheRelayBetweenPolls(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	config := swift()
	config.Poll = 10 * time.Second
	left := make(chan time.Time, 10)
	b.before = func(messages []outbox.Message) error {
		if messages[0].Type == "late" {
			left <- o.now()
		}
		return nil
	}
	o.add(message("a", "first"))
	o.relay(b, config)
	late := time.Hour
	for try := 0; try < 5 && late > 6*time.Second; try++ { // a poll comes after ten seconds; a slow machine has several tries
		due := o.now().Add(2 * time.Second)
		o.add(delayed("a", "late", due))
		late = await(t, "it", left).Sub(due)
		if late < 0 {
			break
		}
	}
	if late < 0 || late > 6*time.Second {
		t.Errorf("it left %v late", late)
	}
}

// Any relay moves any message to the outbox. The relay of its topic publishes it, and the order is
// that of NotBefore.
func TestDelayed_KeepsOrderAcrossRelaysAndStreams(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	const keys, each = 6, 50
	hooks, rest := &broker{}, &broker{}
	config := swift()
	config.Streams, config.BatchSize = 4, 20
	named := config
	named.Name, named.Topics = "hooks", []string{"hooks"}
	o.relay(hooks, named)
	o.relay(rest, config)
	o.relay(rest, config)
	due := o.now().Add(500 * time.Millisecond)
	var messages []outbox.Message
	for i := range each {
		for k := range keys {
			m := delayed(fmt.Sprint("key ", k), fmt.Sprint(i), due.Add(time.Duration(i)*time.Millisecond))
			if k%2 == 0 {
				m.Topic = "hooks"
			}
			messages = append(messages, m)
		}
	}
	o.add(messages...)
	eventually(t, "all of them", func() bool { return hooks.number()+rest.number() >= keys*each })
	for k := range keys {
		by := map[int]*broker{0: hooks, 1: rest}[k%2]
		types := by.types(fmt.Sprint("key ", k))
		if len(types) != each || !slices.IsSortedFunc(types, func(a, b string) int { return number(a) - number(b) }) {
			t.Errorf("key %d: %v", k, types)
		}
	}
}

func number(text string) (n int) {
	_, _ = fmt.Sscan(text, &n)
	return n
}

func TestRunDelayed_InsertsMessagesThatAreDue(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- outbox.RunDelayed(ctx, o.pool, nil) }()
	o.add(delayed("a", "soon", o.now().Add(300*time.Millisecond)), delayed("a", "later", o.now().Add(time.Hour)))
	eventually(t, "the one that is due", func() bool { return o.waiting() == 1 })
	cancel()
	if err := await(t, "the end", ended); err != nil {
		t.Error(err)
	}
}

// The transaction commits after the message is due. Other messages do not wait for the commit.
func TestDelayed_PublishesALateCommit(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	tomorrow := o.now().Add(24 * time.Hour)
	tx := o.begin()
	o.in(tx, delayed("a", "late", tomorrow))
	o.add(delayed("a", "in time", tomorrow))
	if _, err := tx.Exec(t.Context(), `update idem.delayed set not_before = clock_timestamp() where type = 'late'`); err != nil {
		t.Fatal(err)
	}
	o.becomeDue() // "in time" only: "late" is not committed
	r, _ := o.relay(b, swift())
	eventually(t, "the one that is committed", func() bool { return b.number() == 1 })
	o.commit(tx)
	r.Wake()
	eventually(t, "the other one", func() bool { return b.number() == 2 })
	b.wantTypes(t, []string{"in time", "late"})
}
