package outbox_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

// Several processes relay several streams while messages are added: each message leaves once, in the order of its key.
func TestSeveralRelaysOfSeveralStreamsKeepTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	const keys, each = 24, 40
	o := newOffice(t)
	b := &broker{refuse: func(m *outbox.Message) error {
		if time.Now().UnixNano()%17 == 0 {
			return errRefused
		}
		return nil
	}}
	config := swift()
	config.Streams, config.BatchSize, config.MaxAttempts = 4, 20, 1000
	for range 3 {
		process := &office{t: t, dsn: o.dsn, pool: pgtest.Open(t, o.dsn)}
		process.relay(b, config)
	}
	var adding sync.WaitGroup
	for key := range keys {
		adding.Go(func() {
			for i := range each {
				o.add(message(fmt.Sprint("key ", key), fmt.Sprint(i)), message("", "no key"))
			}
		})
	}
	adding.Wait()
	o.empty()
	var want []string
	for i := range each {
		want = append(want, fmt.Sprint(i))
	}
	for key := range keys {
		if diff := cmp.Diff(want, b.types(fmt.Sprint("key ", key))); diff != "" {
			t.Errorf("key %d (-want +got):\n%s", key, diff)
		}
	}
	if n := b.number(); n != 2*keys*each {
		t.Errorf("%d messages were published, of %d", n, 2*keys*each)
	}
	if n := o.count(`select count(distinct instance) from idem.relays`); n != 4 {
		t.Errorf("%d streams are relayed", n)
	}
}

// While a program is rolled out that has another number of streams, no key has two relays.
func TestRelaysThatDisagreeAboutStreamsWaitForEachOther(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	one, many := &broker{}, &broker{}
	_, stop := o.relay(one, swift())
	o.add(message("a", "1"))
	o.empty()
	config := swift()
	config.Streams = 3
	elsewhere := &office{t: t, dsn: o.dsn, pool: pgtest.Open(t, o.dsn)}
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

// What the Publisher has at the end is waited for, and removed.
func TestStopWaitsForTheCallUnderWayAndDoublesNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
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

// A Publisher that does not even heed its context: others may go on, this process does not call it a second time.
func TestPublisherThatHangsLosesThePostAndHoldsUpTheEndForABoundedTime(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	entered, release := make(chan struct{}, 10), make(chan struct{})
	hanging := outbox.PublisherFunc(func(context.Context, []outbox.Message) error {
		entered <- struct{}{}
		<-release
		return nil
	})
	defer close(release)
	config := swift()
	config.PublishTimeout = 10 * time.Millisecond
	read, written := io.Pipe()
	config.Logger = slog.New(slog.NewTextHandler(written, nil))
	said := make(chan struct{}, 10)
	go func() {
		for lines := bufio.NewScanner(read); lines.Scan(); {
			if strings.Contains(lines.Text(), "level=ERROR") && strings.Contains(lines.Text(), "this process publishes nothing") {
				said <- struct{}{}
			}
		}
	}()
	o.add(message("a", "1"))
	_, stop := o.relay(hanging, config)
	await(t, "the call", entered)
	await(t, "it to be said that the process stands still", said)
	b := &broker{}
	elsewhere := &office{t: t, dsn: o.dsn, pool: pgtest.Open(t, o.dsn)}
	elsewhere.relay(b, swift())
	o.empty()
	if b.number() != 1 || len(entered) != 0 {
		t.Errorf("%d messages were published elsewhere, %d more calls hang", b.number(), len(entered))
	}
	stop()
}

func TestRelayThatCannotWorkSaysSoAtOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := &broker{}
	for name, r := range map[string]*outbox.Relay{
		"no pool":      outbox.NewRelay(nil, b, outbox.RelayConfig{}),
		"no publisher": outbox.NewRelay(o.pool, nil, outbox.RelayConfig{}),
		"attempts":     outbox.NewRelay(o.pool, b, outbox.RelayConfig{MaxAttempts: -1}),
		"pauses":       outbox.NewRelay(o.pool, b, outbox.RelayConfig{MinPause: 2, MaxPause: 1}),
		"streams":      outbox.NewRelay(o.pool, b, outbox.RelayConfig{Streams: 17}),
		"poll":         outbox.NewRelay(o.pool, b, outbox.RelayConfig{Poll: time.Hour}),
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

var _ pgx.Tx
