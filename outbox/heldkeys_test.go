package outbox_test

import (
	"fmt"
	"testing"

	"github.com/idem-go/idem/outbox"
)

// The Publisher does not know keys, and would publish the messages after a refused one.
func TestRelay_HoldsOnlyTheFailedKey(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{refuse: refusing("a1")}
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
	b.wantTypes(t, []string{"a2", "a3"}, "a")
	b.wantTypes(t, []string{"b1", "b2"}, "b")
	if n := b.tries()[first.ID]; n != 3 || b.number() != 5 {
		t.Errorf("%d attempts, %d messages were published", n, b.number())
	}
	if got := o.text(`select concat_ws('|', side, consumer, source, id, key, type, convert_from(payload, 'UTF8'), class, reason, attempts) from idem.dead_letters`); got !=
		"outbox||orders|"+first.ID+"|a|a1|of a1|error|the broker refuses the message|3" {
		t.Errorf("the dead letter is %s", got)
	}
}

func TestRelay_ThousandHeldKeysBlockNoOther(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{refuse: refusing("stuck")}
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
	eventually(t, "the others to be published", func() bool { return b.number() >= 100 })
	for i, what := range b.types() {
		if what != fmt.Sprint(i) {
			t.Fatalf("%s was published", what)
		}
	}
	eventually(t, "the messages of the thousand keys to be held", func() bool { return o.count(`select count(*) from idem.outbox where held`) == 2000 })
}

func TestRelay_StoresAllAttemptsWhenStopped(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.exec(`insert into idem.outbox (created_at, id, aggregatetype, aggregateid, type)
		select now(), gen_random_uuid(), 't', '', 'refused' from generate_series(1, 3000) i`)
	seen := make(chan struct{})
	tries := 0
	b := &broker{refuse: func(*outbox.Message) error {
		if tries++; tries == 2500 {
			close(seen)
		}
		return errRefused
	}}
	_, stop := o.relay(b, outbox.RelayConfig{MaxAttempts: 1_000_000})
	await(t, "most of them to be refused", seen)
	stop()
	if n := o.count(`select sum(attempts) from idem.outbox`); n != tries {
		t.Errorf("%d attempts were made, and %d counted", tries, n)
	}
}
