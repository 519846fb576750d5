package inbox_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgproxy"
)

// keyed returns messages whose key is the first letter of their ID, or none if that is a hyphen.
func keyed(ids ...string) []inbox.Message {
	var ms []inbox.Message
	for _, id := range ids {
		m := message(id)
		m.Key = strings.Trim(id[:1], "-")
		ms = append(ms, m)
	}
	return ms
}

var ordered = []inbox.Option{inbox.WithOrder(), inbox.WithMaxAttempts(3), inbox.WithBackoff(time.Hour, time.Hour)}

func TestWithOrder_BlocksBehindAFailedMessage(t *testing.T) {
	t.Parallel()
	type call struct {
		ids, fails string // the key is the first letter of an ID
		want       string
		due        bool // afterwards, the failed messages are due
	}
	for name, test := range map[string]struct {
		calls   []call
		effects string
	}{
		"in the same call": {[]call{
			{"a1 b1 a2 b2 a3 c1", "a1", "RDRDRD", false}, {"a1 a2 a3", "", "RRR", false}, // a1 is not due
		}, "b1 b2 c1"},
		"of an earlier call": {[]call{
			{"a1", "a1", "R", false}, {"a2 b1 a3", "", "RDR", true}, {"a2", "", "R", false}, // a1 is due, and not there
			{"a1 a2 a3", "", "DDD", false},
		}, "b1 a1 a2 a3"},
		"before which is a handled one": {[]call{ // the broker redelivers that, and then the messages behind it
			{"a1 a2", "a2", "DR", false}, {"a1", "", "d", false}, {"a1 a2", "", "dR", true}, {"a1 a2", "", "dD", false},
		}, "a1 a2"},
		"until it is a dead letter": {[]call{
			{"a1 a2", "a1", "RR", true}, {"a1 a2", "a1", "RR", true}, {"a1 a2", "a1", "XD", false},
		}, "a2"},
		"with a key": {[]call{{"-1 -2", "-1", "RD", false}}, "-2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			for _, c := range test.calls {
				outcomes := b.batch(keyed(strings.Fields(c.ids)...), b.failing(c.fails), ordered...)
				b.wantStates(c.want, outcomes)
				for i, o := range outcomes {
					if o.State == inbox.Retry && i > 0 && c.fails == "a1" && (!errors.Is(o.Err, inbox.ErrBehind) || !o.RetryAt.Equal(outcomes[0].RetryAt)) {
						t.Errorf("%+v", o)
					}
				}
				if c.due {
					b.due()
				}
			}
			b.wantEffects(strings.Fields(test.effects)...)
			if n := b.count(`select count(*) from idem.inbox where attempts > 0 and id in ('a3', 'b2')`); n != 0 {
				t.Error("waiting counts as an attempt")
			}
		})
	}
}

// The message before it was rolled back with it, and may be delivered alone the next time.
func TestWithOrder_DoesNotBlockEarlierMessages(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms, runs := keyed("a1", "a2"), 0
	b.wantStates("RR", b.batch(ms, func(tx pgx.Tx, m inbox.Message) error {
		if m.ID == "a2" {
			return errors.New("it fails")
		}
		if runs++; runs > 1 {
			return &pgconn.PgError{Code: "40001"} // no message's fault
		}
		return b.record(tx, m)
	}, append(slices.Clone(ordered), inbox.WithRetries(0))...))
	b.due()
	b.wantStates("D", b.batch(ms[:1], b.record, ordered...))
	b.wantStates("dD", b.batch(ms, b.record, ordered...))
	b.wantEffects("a1", "a2")
}

// The other process may still roll back.
func TestWithOrder_WaitsForAMessageInProgressElsewhere(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	release := b.hold("a1")
	opts := append([]inbox.Option{inbox.WithLimits(20*time.Millisecond, limit, limit)}, ordered...)
	b.wantStates("RDR", b.batch(keyed("a1", "b1", "a2"), b.record, opts...))
	release()
	b.wantStates("ddD", b.batch(keyed("a1", "b1", "a2"), b.record, opts...))
	b.wantEffects("a1", "b1", "a2")
}

// Another process handles the same redeliveries. It fails with a1 just before this call claims a1.
// The attempt continues without a1, and a2, whose attempt was announced, is tried later.
func TestWithOrder_WaitsForAFailureOfAnotherProcess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		b1     func(b *fixture, tx pgx.Tx, m inbox.Message) error
		handle handling
		want   string
	}{
		"one behind it fails":       {func(*fixture, pgx.Tx, inbox.Message) error { return errPoison }, (*fixture).batch, "RRDR"},
		"all of a Bulk are handled": {(*fixture).record, (*fixture).bulk, "RDDR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			ms := keyed("a1", "b1", "c1", "a2")
			p.wantStates("R", p.batch(ms[:1], p.failing("a1"), ordered...))
			p.due()
			p.exec(`insert into idem.inbox (consumer, source, id, hash, state, since, expires_at, attempts, retry_at, key)
				values ($1, $2, 'a2', sha256($3), 'failing', now(), 'infinity', 0, now(), 'a')`, consumer, ms[3].Source, ms[3].Payload)
			trap := p.proxy.Arm(pgproxy.Before(pgproxy.Contains("ResumeMessages")), pgproxy.Freeze)
			outcomes := make(chan []inbox.Outcome, 1)
			go func() {
				outcomes <- c.handle(&fixture{t: t, pool: p.via}, ms, func(tx pgx.Tx, m inbox.Message) error {
					if m.ID == "b1" {
						return c.b1(p.fixture, tx, m)
					}
					return p.record(tx, m)
				}, ordered...)
			}()
			frozen := await(t, "the attempt", trap.Fired())
			p.exec(`update idem.inbox set attempts = 2, retry_at = clock_timestamp() + '1 hour' where id = 'a1'`)
			frozen.Conn.Resume()
			p.wantStates(c.want, await(t, "the outcomes", outcomes))
			if n := p.count(`select count(*) from books where id like 'a%'`); n != 0 {
				t.Errorf("%d effects of the key", n)
			}
		})
	}
}

// A message with the ID of another one is handled after it, and later messages of its key after
// both.
func TestWithOrder_WaitsForAMismatch(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := keyed("b0", "b1", "b1", "a2")
	ms[2].Key, ms[2].Payload = "a", []byte("another one")
	b.wantStates("RRDD", b.batch(ms, b.failing("b0"), ordered...))
	b.wantEffects("b1", "a2")
}

func TestBulk_HalvesToFindFailingMessages(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var sizes []int
	fn := func(tx pgx.Tx, ms []inbox.Message) error {
		sizes = append(sizes, len(ms))
		if err := b.recordAll(tx, ms); err != nil {
			return err
		}
		for _, m := range ms {
			if m.ID == "m-0005" || m.ID == "m-0011" {
				return errPoison
			}
		}
		return nil
	}
	outcomes, err := inbox.Bulk(t.Context(), b.pool, consumer, messages("m", 16), fn)
	if err != nil {
		t.Fatal(err)
	}
	b.wantStates("DDDDDRDDDDDRDDDD", outcomes)
	b.wantOnce(14)
	if b.attempts("m-0005") != 1 || b.attempts("m-0011") != 1 || slices.Max(sizes) != 16 {
		t.Errorf("the failing messages are not counted once, after calls of %d messages", sizes)
	}
}

func TestBatch_HandlesCopiesOnce(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := keyed("a", "b", "a", "c", "b", "a")
	b.wantStates("DDdDdd", b.batch(ms, b.record))
	b.wantOnce(3)
	other := message("d")
	other.Payload = []byte("another payload")
	outcomes := b.batch([]inbox.Message{message("d"), other, message("d"), other}, b.record)
	b.wantStates("DXdX", outcomes)
	if !errors.Is(outcomes[1].Err, inbox.ErrMismatch) {
		t.Errorf("%+v", outcomes[1])
	}
	b.wantStates("RR", b.batch([]inbox.Message{message("e"), message("e")}, b.failing("e")))
	if n := b.attempts("e"); n != 1 {
		t.Errorf("%d attempts are stored", n)
	}
	b.wantOnce(4)
}
