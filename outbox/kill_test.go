package outbox_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

// No commit covers both publishing and removing. Another process does not take over while the first
// one lives. The loss of all connections stands for a kill.
func TestRelay_RepublishesUnderTheSameIDsAfterAKill(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	for i := range 3 {
		o.add(message("a", fmt.Sprint(i)), message("b", fmt.Sprint(i)))
	}
	first, second := &broker{}, &broker{}
	published, release := make(chan struct{}, 1), make(chan struct{})
	victim := pgtest.Proxy(t, o.dsn)
	o.through(victim).relay(outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		err := first.Publish(ctx, messages)
		published <- struct{}{}
		<-release
		return err
	}), swift())
	await(t, "the first of each key to be published", published)
	var looks atomic.Int64
	proxy := pgtest.Proxy(t, o.dsn)
	sees := pgproxy.Contains("SeeLanes")
	defer proxy.Observe(func(e pgproxy.Event) {
		if e.Stage == pgproxy.Answered && sees(e.Statement) {
			looks.Add(1)
		}
	})()
	o.through(proxy).relay(second, swift())
	eventually(t, "two looks", func() bool { return looks.Load() >= 2 })
	if first.number() != 2 || second.number() != 0 {
		t.Fatalf("%d and %d messages were published", first.number(), second.number())
	}
	victim.Refuse(pgproxy.Reset)
	victim.Cut(pgproxy.Reset)
	o.empty()
	close(release)
	for _, key := range []string{"a", "b"} {
		second.wantTypes(t, []string{"0", "1", "2"}, key)
	}
	ids := map[string]bool{}
	for _, m := range append(first.all(), second.all()...) {
		ids[m.ID] = true
	}
	if len(ids) != 6 {
		t.Errorf("%d IDs", len(ids))
	}
}

// No message is lost, and at most one batch is published again.
func TestRelay_SurvivesACutConnection(t *testing.T) {
	t.Parallel()
	for name, point := range map[string]pgproxy.Point{
		"after it has":            pgproxy.AfterAnswer(pgproxy.Contains("TakeLanes")),
		"before it removes":       pgproxy.Before(pgproxy.Contains("DeletePublished")),
		"in the middle of COMMIT": pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"),
		"after a dead letter":     pgproxy.AfterAnswer(pgproxy.Contains("BuryUnpublished")),
		"after a failure":         pgproxy.AfterAnswer(pgproxy.Contains("BlameMessages")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newDatabase(t)
			proxy := pgtest.Proxy(t, o.dsn)
			b := &broker{refuse: refusing("poison")}
			var want []string
			for i := range 60 {
				o.add(message("a", fmt.Sprint(i)), message("poisoned", "poison"))
				want = append(want, fmt.Sprint(i))
			}
			config := swift()
			config.BatchSize, config.MaxAttempts = 16, 2
			trap := proxy.Arm(point, pgproxy.Reset)
			o.through(proxy).relay(b, config)
			await(t, "the cut", trap.Fired())
			o.empty()
			if diff := cmp.Diff(want, firsts(b.types("a"))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			o.wantDead(60)
			if n := b.number() - 60; n > 16 {
				t.Errorf("%d messages were published again", n)
			}
		})
	}
}

// firsts removes repetitions.
func firsts(all []string) []string {
	met := map[string]bool{}
	var first []string
	for _, what := range all {
		if !met[what] {
			met[what] = true
			first = append(first, what)
		}
	}
	return first
}

// It uses a connection of its own.
func TestRelay_WorksWithAnExhaustedPool(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	small := &database{t: t, dsn: o.dsn, pool: pgtest.Open(t, o.dsn, func(c *pgxpool.Config) { c.MaxConns = 1 })}
	conn, err := small.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	b := &broker{}
	small.relay(b, swift())
	o.add(message("a", "1"))
	o.empty()
}

func TestOwnership_LeaseIsReleasedAtTheEnd(t *testing.T) {
	t.Parallel()
	o := newDatabase(t, behindPooler)
	_, stop := o.relay(&broker{}, swift())
	o.add(message("a", "1"))
	o.empty()
	stop()
	if n := o.count(`select count(*) from idem.leases`); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// pooled is a connection through a pooler: the client receives another process number than that of
// the server process.
type pooled struct {
	net.Conn
	told bool
}

func (c *pooled) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for i := 0; i+6 < n && !c.told; i++ {
		if string(b[i:i+5]) == "K\x00\x00\x00\x0c" {
			c.told = true
			b[i+5] ^= 0x7f
		}
	}
	return n, err
}

func behindPooler(c *pgxpool.Config) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &pooled{Conn: conn}, err
	}
}

// Behind a pooler a session has no owner, and its lock would outlast the process.
func TestOwnership_BehindAPoolerIsALease(t *testing.T) {
	t.Parallel()
	o := newDatabase(t, behindPooler)
	direct := &database{t: t, dsn: o.dsn, pool: pgtest.Open(t, o.dsn)}
	hold := newGate()
	hold.refuse = refusing("poison")
	config := swift()
	config.MaxAttempts = 1
	o.relay(hold, config)
	o.add(message("a", "1"), message("b", "poison"))
	await(t, "a call", hold.entered)
	if n := o.count(`select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`); n != 0 {
		t.Errorf("%d locks are held", n)
	}
	if n := o.count(`select count(*) from idem.leases l join idem.relays r using (instance) where l.expires_at > clock_timestamp()`); n != 16 {
		t.Errorf("%d lanes have a lease", n)
	}
	other := &broker{}
	direct.relay(other, swift())
	o.exec(`update idem.leases set expires_at = clock_timestamp()`) // as if the process had sent no heartbeat for long
	eventually(t, "another relay to take over", func() bool { return other.number() == 2 })
	close(hold.open)
	o.empty() // the first relay may store what it has published, but it must not store a dead letter
	eventually(t, "the first relay to notice", func() bool {
		return o.count(`select count(*) from idem.leases where expires_at > clock_timestamp()`) == 0
	})
	o.wantDead(0)
}
