package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/outbox"
)

// During a rollout that changes the number of streams, no key has two relays.
func TestStreams_WaitForAnotherNumberOfStreams(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	one, many := &broker{}, &broker{}
	_, stop := o.relay(one, swift())
	o.add(message("a", "1"))
	o.empty()
	config := swift()
	config.Streams = 3
	elsewhere := &database{t: t, dsn: o.dsn, pool: pgtest.Open(t, o.dsn)}
	elsewhere.relay(many, config)
	for i := range 30 {
		o.add(message(fmt.Sprint(i), "2"))
	}
	o.empty()
	if one.number() != 31 || many.number() != 0 {
		t.Errorf("%d and %d messages were published", one.number(), many.number())
	}
	stop()
	for i := range 30 {
		o.add(message(fmt.Sprint(i), "3"))
	}
	o.empty()
	if many.number() != 30 {
		t.Errorf("%d messages were published by the one that came after", many.number())
	}
}

// The relay stores the result of the call, so no message is published twice.
func TestRelay_WaitsForTheCallInProgress(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	entered, release := make(chan struct{}), make(chan struct{})
	publisher := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		if b.number() == 10 {
			close(entered)
			<-release
		}
		if err := ctx.Err(); err != nil {
			t.Errorf("the call was cut off: %v", err)
		}
		return b.Publish(ctx, messages)
	})
	config := swift()
	config.BatchSize, config.Drain = 10, limit
	for i := range 50 {
		o.add(message(fmt.Sprint(i), fmt.Sprint(i)))
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- outbox.NewRelay(o.pool, publisher, config).Run(ctx) }()
	await(t, "the second call", entered)
	stop()
	close(release)
	if err := await(t, "the end of the relay", stopped); err != nil {
		t.Error(err)
	}
	if left := o.waiting(); left+b.number() != 50 || b.number() > 30 {
		t.Errorf("%d messages were published, and %d are left", b.number(), left)
	}
	rest := &broker{}
	o.relay(rest, swift())
	o.empty()
	if n := b.number() + rest.number(); n != 50 {
		t.Errorf("50 messages were published %d times", n)
	}
}

// The Publisher ignores its context. Another process takes over, this one makes no second call, and
// Run returns within a bounded time.
func TestRelay_ReleasesTheStreamOfAHungPublisher(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	hanging := newGate()
	defer close(hanging.open)
	config := swift()
	config.PublishTimeout = 10 * time.Millisecond
	o.add(message("a", "1"))
	_, stop := o.relay(hanging, config)
	await(t, "the call", hanging.entered)
	b := &broker{}
	elsewhere := &database{t: t, dsn: o.dsn, pool: pgtest.Open(t, o.dsn)}
	elsewhere.relay(b, swift())
	o.empty()
	if b.number() != 1 || len(hanging.entered) != 0 {
		t.Errorf("%d messages were published elsewhere, %d more calls hang", b.number(), len(hanging.entered))
	}
	stop()
}

func TestRun_ReturnsConfigurationErrors(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	for name, r := range map[string]*outbox.Relay{
		"no pool":      outbox.NewRelay(nil, b, outbox.RelayConfig{}),
		"no publisher": outbox.NewRelay(o.pool, nil, outbox.RelayConfig{}),
		"attempts":     outbox.NewRelay(o.pool, b, outbox.RelayConfig{MaxAttempts: -1}),
		"pauses":       outbox.NewRelay(o.pool, b, outbox.RelayConfig{MinPause: 2, MaxPause: 1}),
		"streams":      outbox.NewRelay(o.pool, b, outbox.RelayConfig{Streams: 17}),
		"poll":         outbox.NewRelay(o.pool, b, outbox.RelayConfig{Poll: time.Hour}),
		"no name":      outbox.NewRelay(o.pool, b, named("", "a")),
		"no topics":    outbox.NewRelay(o.pool, b, named("a")),
		"empty topic":  outbox.NewRelay(o.pool, b, named("a", "")),
		"inner *":      outbox.NewRelay(o.pool, b, named("a", "b*c")),
		"topic twice":  outbox.NewRelay(o.pool, b, named("a", "b", "b*")),
	} {
		if err := r.Run(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		r.Wake()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := outbox.NewRelay(o.pool, b, outbox.RelayConfig{}).Run(ctx); err != nil {
		t.Error(err)
	}
}

// The relay does not wait when the topics of another relay change, when its session is lost, or
// when it stops.
func TestDivider_DoesNotWaitForAHungDestination(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b, other := &broker{}, &broker{}
	hangs, goOn := make(chan struct{}, 10), make(chan struct{})
	h := divided{func(ctx context.Context, messages []outbox.Message) error {
		if messages[0].Topic == "hangs" {
			hangs <- struct{}{}
			<-goOn
		}
		return b.Publish(ctx, messages)
	}}
	config := swift()
	config.PublishTimeout, config.Drain = time.Hour, time.Hour // a relay that waits would wait longer than the test runs
	_, stop := o.relay(h, config)
	o.add(to("hangs", "k", "1"))
	await(t, "the call", hangs)

	o.relay(other, named("other", "theirs"))
	eventually(t, "the other relay to have its topic", func() bool { return o.count(`select count(*) from idem.relays where relay = 'other'`) == 16 })
	o.add(to("theirs", "k", "2"), to("fine", "k", "3"))
	eventually(t, "messages of both relays, after a change of topics", func() bool { return other.number() == 1 && b.number() == 1 })

	o.endSessions()
	o.add(to("fine", "k", "4"), to("hangs", "k", "5"))
	eventually(t, "a message behind a lost session", func() bool { return b.number() == 2 })

	slow := make(chan struct{})
	b.mu.Lock()
	b.refuse = func(*outbox.Message) error { close(slow); return nil }
	b.mu.Unlock()
	o.add(to("fine", "k", "6"))
	await(t, "the last message", slow)
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	eventually(t, "the last message to be removed, although the relay has yet to end", func() bool { return o.waiting() == 2 })
	b.mu.Lock()
	b.refuse = nil
	b.mu.Unlock()
	close(goOn)
	await(t, "the end", ended)
	if n := len(hangs); n > 0 {
		t.Errorf("there were %d calls more beside the one that hangs", n)
	}
}

// The primary dies. Its successor is read-only for a while and then becomes the primary.
func TestRelay_SurvivesAFailover(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	if err := schema.UpAt(t.Context(), primary.DSN()); err != nil {
		t.Fatal(err)
	}
	standby, err := primary.Standby(t.Context(), "standby", pgserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { standby.Close() })
	on := func(s *pgserver.Server) *database {
		return &database{t: t, dsn: s.DSN(), pool: pgtest.Open(t, s.DSN())}
	}
	before := on(primary)
	b := &broker{}
	var mended atomic.Bool
	b.refuse = func(m *outbox.Message) error {
		if m.Type == "held back" && !mended.Load() {
			return errRefused
		}
		return nil
	}
	config := swift()
	config.MaxAttempts = 1000
	config.MaxPause = 5e8
	either := &database{t: t, pool: pgtest.Open(t, strings.Replace(primary.DSN(), port(primary), port(primary)+",127.0.0.1"+port(standby), 1))}
	either.relay(b, config)
	for i := range 50 {
		before.add(message("a", fmt.Sprint(i)))
	}
	before.add(message("b", "held back"), message("b", "behind"))
	eventually(t, "the other messages", func() bool { return b.number() == 50 })
	lsn := before.text(`select pg_current_wal_lsn()::text`)
	after := on(standby)
	eventually(t, "the standby to catch up", func() bool {
		return after.count(`select (pg_last_wal_replay_lsn() >= $1::text::pg_lsn)::int`, lsn) == 1
	})
	primary.Kill()
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	mended.Store(true)
	after.add(message("b", "after"))
	after.empty()
	if diff := cmp.Diff([]string{"held back", "behind", "after"}, firsts(b.types("b"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func port(s *pgserver.Server) string { return fmt.Sprintf(":%d", s.Port()) }
