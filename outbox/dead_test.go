package outbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/purge"
	"github.com/idem-go/idem/seal"
)

// dead makes messages dead letters.
func (o *database) dead(config outbox.RelayConfig, messages ...outbox.Message) {
	o.t.Helper()
	b := &broker{refuse: func(*outbox.Message) error { return errRefused }}
	config.MaxAttempts = 1
	o.add(messages...)
	_, stop := o.relay(b, config)
	o.empty()
	stop()
}

func TestDeadLetters_ListShowRedriveDrop(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	messages := []outbox.Message{message("a", "1"), message("a", "2"), message("b", "3"), {Topic: "invoices", Type: "4"}}
	messages[0].Headers = map[string]string{"h": "v"}
	o.dead(swift(), messages...)
	if letters := o.letters(outbox.Ref{Topic: "orders"}); len(letters) != 3 || letters[0].Payload != nil {
		t.Fatal(letters)
	}
	if letters := o.letters(outbox.Ref{ID: messages[3].ID}); len(letters) != 1 || letters[0].Ref() != (outbox.Ref{Topic: "invoices", ID: messages[3].ID}) {
		t.Fatal(letters)
	}
	shown, err := outbox.Show(t.Context(), o.pool, outbox.Ref{Topic: "orders", ID: messages[0].ID})
	if diff := cmp.Diff(messages[0], shown.Message); err != nil || diff != "" || shown.Attempts != 1 || shown.Reason != errRefused.Error() ||
		shown.DiedAt.Before(shown.AddedAt) {
		t.Errorf("%+v, %v (-added +shown):\n%s", shown, err, diff)
	}
	if err := outbox.Drop(t.Context(), o.pool, outbox.Ref{Topic: "orders", ID: messages[2].ID}); err != nil {
		t.Error(err)
	}
	for _, id := range []string{messages[2].ID, outbox.NewID(), "no id"} {
		if err := outbox.Redrive(t.Context(), o.pool, outbox.Ref{Topic: "orders", ID: id}); !errors.Is(err, outbox.ErrNoDeadLetter) {
			t.Errorf("an unknown dead letter: %v", err)
		}
	}
	if err := outbox.Redrive(t.Context(), o.pool, outbox.Ref{Topic: "orders", ID: messages[0].ID}); err != nil {
		t.Error(err)
	}
	b := &broker{}
	o.relay(b, swift())
	o.empty()
	if diff := cmp.Diff(messages[:1], b.all()); diff != "" {
		t.Errorf("(-added +published):\n%s", diff)
	}
	o.wantDead(2)
	for range 2 { // a message that is dead-lettered again replaces its dead letter
		o.dead(swift(), messages[1])
	}
	o.wantDead(2)
}

func TestRelay_SealsDeadLetters(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	sealer := seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": []byte(strings.Repeat("k", 32))}})
	m := message("a", "1")
	m.ID, m.Payload, m.Headers = outbox.NewID(), []byte("a secret payload"), map[string]string{"h": "a secret header"}
	config := swift()
	config.Sealer = sealer
	o.dead(config, m)
	if n := o.count(`select count(*) from idem.dead_letters d where sealed_by = 'k1' and d::text not like '%secret%' and position('secret'::bytea in payload) = 0`); n != 1 {
		t.Error("the dead letter is not sealed")
	}
	if _, err := outbox.Show(t.Context(), o.pool, outbox.Ref{Topic: "orders", ID: m.ID}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("without the key: %v", err)
	}
	if err := outbox.Redrive(t.Context(), o.pool, outbox.Ref{Topic: "orders", ID: m.ID}); err == nil || o.count(`select count(*) from idem.dead_letters`) != 1 {
		t.Errorf("Redrive without the key: %v", err)
	}
	o.exec(`insert into idem.dead_letters select side, consumer, source, gen_random_uuid(), key, type, payload, headers, sealed_by, class, reason, attempts, created_at, died_at from idem.dead_letters`)
	other := o.text(`select id from idem.dead_letters where id <> $1`, m.ID)
	if _, err := outbox.Show(t.Context(), o.pool, outbox.Ref{Topic: "orders", ID: other}, outbox.WithSealer(sealer)); !errors.Is(err, seal.ErrTampered) {
		t.Errorf("a dead letter with the contents of another: %v", err)
	}
	if err := outbox.Redrive(t.Context(), o.pool, outbox.Ref{Topic: "orders", ID: m.ID}, outbox.WithSealer(sealer)); err != nil {
		t.Fatal(err)
	}
	b := &broker{}
	o.relay(b, swift())
	o.empty()
	if diff := cmp.Diff([]outbox.Message{m}, b.all()); diff != "" {
		t.Errorf("(-added +published):\n%s", diff)
	}
}

func TestRelay_KeepsPublishedMessagesForRetention(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	m := message("a", "1")
	m.ID, m.Headers = outbox.NewID(), map[string]string{"h": "v"}
	config := swift()
	config.Retention = time.Hour
	config.MaxAttempts = 5
	tries := 0
	_, stop := o.relay(&broker{refuse: func(*outbox.Message) error {
		if tries++; tries == 2 {
			return errRefused
		}
		return nil
	}}, config)
	o.add(m, message("b", "2"), message("b", "3"))
	o.empty()
	stop()
	if n := o.count(`select count(*) from idem.published where expires_at - published_at between interval '59 minutes' and interval '61 minutes'`); n != 3 {
		t.Errorf("%d messages are kept", n)
	}
	if got := o.text(`select concat_ws('|', aggregatetype, aggregateid, type, convert_from(payload, 'UTF8'), headers) from idem.published where id = $1`, m.ID); got != `orders|a|1|of 1|{"h": "v"}` {
		t.Error(got)
	}
	config.Sealer = seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": []byte(strings.Repeat("k", 32))}})
	o.add(message("c", "4"))
	o.relay(&broker{}, config)
	o.empty()
	if n := o.count(`select count(*) from idem.published where aggregateid = 'c' and payload is null and headers is null`); n != 1 {
		t.Error("with a Sealer, idem.published has a payload or headers")
	}
	o.exec(`update idem.published set expires_at = now() - interval '1 minute' where aggregateid <> 'a'`)
	if _, err := purge.Once(t.Context(), o.pool, purge.Options{Share: 1}); err != nil {
		t.Fatal(err)
	}
	if got := o.text(`select string_agg(aggregateid, '') from idem.published`); got != "a" {
		t.Errorf("messages of the keys %s are left", got)
	}
}

func TestReadStats_CountsMessages(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	figures := func() outbox.Stats {
		t.Helper()
		f, err := outbox.ReadStats(t.Context(), o.pool)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if f := figures(); f.Oldest != 0 || f.Waiting+f.Held+f.HeldKeys+f.Dead != 0 || time.Since(f.ReadAt).Abs() > time.Hour {
		t.Errorf("%+v", f)
	}
	o.dead(swift(), message("a", "1"))
	b := &broker{refuse: func(*outbox.Message) error { return errRefused }}
	config := swift()
	config.MaxAttempts = 1000
	_, stop := o.relay(b, config)
	o.add(message("a", "2"), message("a", "3"), message("b", "4"), message("", "5"), message("", "6"))
	eventually(t, "all to be held", func() bool { return figures().Held == 5 })
	stop()
	o.exec(`update idem.outbox set created_at = now() - interval '1 hour' where type = '3'`)
	if f := figures(); f.HeldKeys != 4 || f.Dead != 1 || f.Oldest < time.Hour || f.Oldest > 2*time.Hour {
		t.Errorf("%+v", f)
	}
	o.fill(outbox.MaxCount + 10)
	o.exec(`update idem.outbox set created_at = now() - interval '1 day' where not held and seq = (select min(seq) from idem.outbox where not held)`)
	if f := figures(); f.Waiting != outbox.MaxCount || f.Oldest < 24*time.Hour {
		t.Errorf("%+v", f)
	}
}

// Oldest counts from the time when a message was due.
func TestReadStats_CountsDelayedMessagesSeparately(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	tomorrow := o.now().Add(24 * time.Hour).Truncate(time.Microsecond)
	o.add(delayed("a", "1", tomorrow), delayed("a", "2", tomorrow.Add(time.Hour)))
	f, err := outbox.ReadStats(t.Context(), o.pool)
	if err != nil || f.Waiting != 0 || f.Oldest != 0 || f.Delayed != 2 || !f.NextDue.Equal(tomorrow) {
		t.Errorf("%+v, %v", f, err)
	}
	o.exec(`update idem.delayed set created_at = now() - interval '1 day', not_before = clock_timestamp() - interval '1 minute' where not_before = $1`, tomorrow)
	f, err = outbox.ReadStats(t.Context(), o.pool)
	if err != nil || f.Waiting != 1 || f.Oldest < time.Minute || f.Oldest > time.Hour || f.Delayed != 1 {
		t.Errorf("a message is due: %+v, %v", f, err)
	}
}

func TestDeadLetters_AuditEachAction(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	messages := []outbox.Message{message("a", "1"), message("b", "2")}
	o.dead(swift(), messages...)
	ctx := idem.WithReason(idem.WithPerson(t.Context(), "ann"), "INC-7")
	for range 2 { // the second time, nothing is left to audit
		_ = outbox.Redrive(ctx, o.pool, outbox.Ref{Topic: "orders", ID: messages[0].ID})
		_ = outbox.Drop(ctx, o.pool, outbox.Ref{Topic: "orders", ID: messages[1].ID})
	}
	got := o.text(`select string_agg(concat_ws('|', act, outcome, role = session_user, person, reason, side, source, message_id), e'\n' order by at) from idem.audit`)
	want := "redrive|to be tried again|t|ann|INC-7|outbox|orders|" + messages[0].ID + "\ndrop|deleted|t|ann|INC-7|outbox|orders|" + messages[1].ID
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
