package ledger

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/cutproxy"
)

// Chaos sends messages from an outbox through a broker to consumers, and breaks everything on the way.
type Chaos struct {
	Messages  int
	Topic     string
	Consumers int                       // processes, 2 by default
	Pool      *pgxpool.Pool             // of the test's own
	Database  *cutproxy.Proxy           // by which the processes reach the database
	Broker    *cutproxy.Proxy           // and the broker, if that has connections of its own
	Env       []string                  // of the processes: relay and consumer are their roles
	Restart   func() error              // kills the broker, and starts it again, if it is to be killed
	Idle      func() (bool, error)      // whether the broker has nothing left to deliver
	Faults    func(often Often) []Fault // further ones
}

// Often returns how much progress there is between two faults that a short run has so many of. A long one has more, further apart.
type Often func(times int) int

// Run returns what came of the messages when there is nothing left of them, and has an error for what should not have.
func (c *Chaos) Run(t *testing.T) Report {
	t.Helper()
	if err := Create(t.Context(), c.Pool); err != nil {
		t.Fatal(err)
	}
	relays, consumers := c.team(t, 2, "relay"), c.team(t, cmp.Or(c.Consumers, 2), "consumer")
	began := time.Now()
	writer := &Writer{Pool: c.Pool, Topic: c.Topic, Messages: c.Messages, Keys: 50, Poison: 200, Pause: 20 * time.Millisecond}
	var writing sync.WaitGroup
	writing.Go(func() {
		if err := writer.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	restarts, kills := 0, []string(nil)
	if c.Restart != nil {
		restarts = 1 + c.Messages/20_000
	}
	writing.Go(func() {
		for i := range restarts { // at even distances
			c.patience(t, "messages", func() bool { return writer.Said() > (2*i+1)*c.Messages/(2*restarts) })
			kills = append(kills, Moment(time.Now())+" the broker killed")
			if err := c.Restart(); err != nil {
				t.Error(err)
			}
			kills = append(kills, Moment(time.Now())+" the broker is back")
		}
	})
	var effects atomic.Int64
	ctx, calm := context.WithCancel(t.Context())
	type told struct {
		times string
		log   []string
	}
	storm := make(chan told, 1)
	go func() {
		times, log, err := Storm(ctx, func() int { return int(effects.Load()) }, c.faults(relays, consumers)...)
		if err != nil {
			t.Error(err)
		}
		storm <- told{times, log}
	}()
	c.patience(t, "most messages to have their effect", func() bool {
		var n int64
		err := c.Pool.QueryRow(t.Context(), `SELECT count(*) FROM effects`).Scan(&n)
		effects.Store(n)
		return err == nil && int(n) > c.Messages*9/10
	})
	writing.Wait()
	calm()
	faults := <-storm
	report := c.settled(t)
	t.Logf("%+v in %v, with %d × the broker killed, %s", report, time.Since(began).Round(time.Second), restarts, faults.times)
	if report.Inversions > 0 {
		inverted, err := Inverted(t.Context(), c.Pool)
		t.Logf("inverted (%v):\n%s\nfaults:\n%s\n%s", err, inverted, strings.Join(kills, "\n"), strings.Join(faults.log, "\n"))
	}
	return report
}

func (c *Chaos) faults(relays, consumers *Team) []Fault {
	often := func(times int) int { return c.Messages / (times * (1 + c.Messages/20_000)) }
	faults := []Fault{
		{"a relay killed", often(7), relays.KillOne},
		{"a consumer killed", often(9), consumers.KillOne},
		{"the database cut off", often(12), func() error { c.Database.Cut(); return nil }},
	}
	if c.Broker != nil {
		faults = append(faults,
			Fault{"the broker cut off", often(12), func() error { c.Broker.Cut(); return nil }},
			Fault{"acknowledgements lost", often(10), func() error {
				c.Broker.Deafen(true)
				time.Sleep(50 * time.Millisecond)
				c.Broker.Deafen(false)
				return nil
			}})
	}
	if c.Faults != nil {
		faults = append(faults, c.Faults(often)...)
	}
	return faults
}

// settled waits until nothing is left, and reports.
func (c *Chaos) settled(t *testing.T) (report Report) {
	t.Helper()
	read := func() {
		var err error
		if report, err = Read(t.Context(), c.Pool); err != nil {
			t.Fatal(err)
		}
	}
	c.patience(t, "all messages to have their effect, and the broker to have nothing left", func() bool {
		idle, err := c.Idle()
		read()
		return err == nil && idle && report.Settled()
	})
	return report
}

func (c *Chaos) team(t *testing.T, n int, role string) *Team {
	t.Helper()
	team, err := NewTeam(n, role, t.Output(), c.Env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(team.Close)
	return team
}

// patience waits for what takes as long as there are messages. It does not look all the time: that counts them.
func (c *Chaos) patience(t *testing.T, what string, is func() bool) {
	t.Helper()
	last := time.Now().Add(10*time.Minute + time.Duration(c.Messages)*10*time.Millisecond)
	for {
		began := time.Now()
		if is() {
			return
		}
		if time.Now().After(last) {
			report, err := Read(context.WithoutCancel(t.Context()), c.Pool)
			t.Errorf("waited in vain for: %s; so far: %+v, %v", what, report, err)
			return
		}
		time.Sleep(min(max(50*time.Millisecond, 10*time.Since(began)), 3*time.Second))
	}
}

// Behind returns a proxy in front of the database with this address, and the address by way of it.
func Behind(t testing.TB, dsn string) (*cutproxy.Proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	proxy := Front(t, u.Host)
	u.Host = proxy.Addr()
	return proxy, u.String()
}

// Front returns a proxy in front of this address.
func Front(t testing.TB, addr string) *cutproxy.Proxy {
	t.Helper()
	proxy, err := cutproxy.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}
