package outbox_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/outbox"
)

// The Publisher knows nothing of keys, and would publish what is behind a message that it refuses.
func TestFailedMessageHoldsBackItsOwnKeyOnlyUntilItIsADeadLetter(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := &broker{refuse: func(m *outbox.Message) error {
		if m.Type == "a1" {
			return errRefused
		}
		return nil
	}}
	dead := make(chan outbox.DeadLetter, 1)
	config := swift()
	config.MaxAttempts = 3
	config.OnDead = func(d outbox.DeadLetter) {
		if got := b.types("a"); len(got) > 0 {
			t.Errorf("%v left before the first message of the key was dead", got)
		}
		dead <- d
	}
	first := message("a", "a1")
	first.ID = outbox.NewID()
	o.add(first, message("a", "a2"), message("b", "b1"), message("", "c1"), message("a", "a3"), message("b", "b2"))
	o.relay(b, config)
	d := await(t, "the dead letter", dead)
	if d.ID != first.ID || d.Attempts != 3 || d.Reason != errRefused.Error() || d.Key != "a" || d.Class != "error" {
		t.Errorf("%+v", d)
	}
	o.empty()
	if diff := cmp.Diff([]string{"a2", "a3"}, b.types("a")); diff != "" {
		t.Errorf("of the key that was held back (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"b1", "b2"}, b.types("b")); diff != "" {
		t.Errorf("of another key (-want +got):\n%s", diff)
	}
	if n := b.tries()[first.ID]; n != 3 || b.number() != 5 {
		t.Errorf("%d attempts, %d messages were published", n, b.number())
	}
	if got := o.text(`select concat_ws('|', side, consumer, source, id, key, type, convert_from(payload, 'UTF8'), class, reason, attempts) from idem.dead_letters`); got !=
		"outbox||orders|"+first.ID+"|a|a1|of a1|error|the broker does not want it|3" {
		t.Errorf("the dead letter is %s", got)
	}
}

func TestMessageThatFailsForATimeLeavesInItsPlace(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	tries := map[string]int{}
	b := &broker{refuse: func(m *outbox.Message) error {
		if tries[m.Type]++; m.Key == "a" && tries[m.Type] < 4 {
			return errRefused
		}
		return nil
	}}
	var want []string
	for i := range 40 {
		o.add(message("a", fmt.Sprint(i)), message("b", fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	o.relay(b, swift())
	o.empty()
	for _, key := range []string{"a", "b"} {
		if diff := cmp.Diff(want, b.types(key)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
	if n := o.count(`select count(*) from idem.dead_letters`); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

func TestThousandKeysThatAreHeldBackDoNotHideTheOthers(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := &broker{refuse: func(m *outbox.Message) error {
		if m.Type == "stuck" {
			return errRefused
		}
		return nil
	}}
	var stuck []outbox.Message
	for i := range 1000 {
		stuck = append(stuck, message(fmt.Sprint("stuck ", i), "stuck"), message(fmt.Sprint("stuck ", i), "behind"))
	}
	o.add(stuck...)
	for i := range 100 {
		o.add(message("free", fmt.Sprint(i)))
	}
	config := swift()
	config.BatchSize, config.MaxAttempts = 50, 1000
	o.relay(b, config)
	eventually(t, "the others to leave", func() bool { return b.number() >= 100 })
	for i, what := range b.types() {
		if what != fmt.Sprint(i) {
			t.Fatalf("%s was published", what)
		}
	}
	eventually(t, "those of the thousand keys to be held back", func() bool { return o.count(`select count(*) from idem.outbox where held`) == 2000 })
}
