package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/outbox"
)

func TestRelayOutlivesAnOutageOfTheDatabase(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	proxy := pgtest.Proxy(t, o.dsn)
	proxy.Refuse(pgproxy.Reset)
	b := &broker{}
	o.through(proxy).relay(b, swift()) // which begins in the middle of it
	o.add(message("a", "1"))
	proxy.Admit()
	o.empty()
	proxy.Refuse(pgproxy.Reset)
	proxy.Cut(pgproxy.Reset)
	o.add(message("a", "2"))
	proxy.Admit()
	o.empty()
	if diff := cmp.Diff([]string{"1", "2"}, firsts(b.types())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The primary dies, what is there instead is read-only for a while, and then a primary.
func TestRelayGoesOnAfterAFailover(t *testing.T) {
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
	on := func(s *pgserver.Server) *office {
		return &office{t: t, dsn: s.DSN(), pool: pgtest.Open(t, s.DSN())}
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
	either := &office{t: t, pool: pgtest.Open(t, strings.Replace(primary.DSN(), port(primary), port(primary)+",127.0.0.1"+port(standby), 1))}
	either.relay(b, config)
	for i := range 50 {
		before.add(message("a", fmt.Sprint(i)))
	}
	before.add(message("b", "held back"), message("b", "behind"))
	eventually(t, "what can leave", func() bool { return b.number() == 50 })
	lsn := before.text(`select pg_current_wal_lsn()::text`)
	after := on(standby)
	eventually(t, "the standby to have it all", func() bool {
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

// The context of a call ends after Drain. What the call returns then is written down as well: the Publisher has published.
func TestRelay_WritesDownACallThatEndsWithDrain(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.add(outbox.Message{Topic: "t", Key: "k"})
	called := make(chan struct{})
	publisher := outbox.PublisherFunc(func(ctx context.Context, _ []outbox.Message) error {
		close(called)
		<-ctx.Done()
		return nil
	})
	config := swift()
	config.Drain = 50 * time.Millisecond
	_, stop := o.relay(publisher, config)
	await(t, "a call", called)
	stop()
	if n := o.waiting(); n != 0 {
		t.Errorf("%d messages are to be published again", n)
	}
}
