package ledger

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/cutproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

var messages = flag.Int("messages", 600, "number of messages of TestChaos")

// Chaos sends messages from an outbox through a broker to consumers while it injects faults. Each
// relay and each consumer is a Child with the role relay or consumer.
type Chaos struct {
	DSN       string // address of the database; the children use it through a proxy
	Topic     string
	Address   string          // address of the broker, for the children
	Broker    *cutproxy.Proxy // the proxy between the children and the broker; may be nil
	Consumers int             // number of consumer processes, 2 by default
	Unordered bool            // the effects of a key need not be in order

	Env     []string                  // further variables of the children
	Restart func() error              // kills the broker and starts it again; may be nil
	Idle    func() (bool, error)      // reports whether the broker has nothing left to deliver
	Faults  func(every Every) []Fault // further faults; may be nil

	messages int
	pool     *pgxpool.Pool
	database *cutproxy.Proxy
}

// Every is a function that returns the field Every of a Fault. The fault is injected n times in a
// short run. In a long run it is injected more often, at longer intervals.
type Every func(n int) int

// Fault is something that breaks. Inject repairs it before it returns.
type Fault struct {
	Name   string
	Every  int // number of effects between two injections; not a time, so that slow machines make progress
	Inject func() error
}

// Run sends the messages and waits until each of them has an effect or is a dead letter. It fails
// the test if a guarantee is broken, or if a fault cannot be injected or repaired.
func (c *Chaos) Run(t *testing.T) {
	t.Helper()
	c.messages, c.pool = *messages, pgtest.Open(t, c.DSN)
	var address string
	c.database, address = proxyDSN(t, c.DSN)
	c.Env = append(c.Env, Env(address, c.Address, c.Topic)...)
	if _, err := c.pool.Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	relays, consumers := c.start(t, 2, "relay"), c.start(t, cmp.Or(c.Consumers, 2), "consumer")
	began := time.Now()
	s := &sender{pool: c.pool, topic: c.Topic, messages: c.messages, keys: 50, poison: 200, pause: 20 * time.Millisecond}
	var sending sync.WaitGroup
	sending.Go(func() {
		if err := s.run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	restarts, restartLog := 0, []string(nil)
	if c.Restart != nil {
		restarts = 1 + c.messages/20_000
	}
	sending.Go(func() {
		for i := range restarts { // the restarts have equal numbers of messages between them
			c.await(t, "messages to be sent", func() bool { return int(s.sent.Load()) > (2*i+1)*c.messages/(2*restarts) })
			restartLog = append(restartLog, clock(time.Now())+" broker killed")
			if err := c.Restart(); err != nil {
				t.Error(err)
			}
			restartLog = append(restartLog, clock(time.Now())+" broker restarted")
		}
	})
	var effects atomic.Int64
	ctx, stopFaults := context.WithCancel(t.Context())
	injector := &injector{progress: func() int { return int(effects.Load()) }, times: map[string]int{}}
	injecting := make(chan struct{})
	go func() {
		defer close(injecting)
		injector.run(ctx, c.faults(relays, consumers))
	}()
	c.await(t, "most messages to have their effect", func() bool {
		var n int64
		err := c.pool.QueryRow(t.Context(), `SELECT count(*) FROM effects`).Scan(&n)
		effects.Store(n)
		return err == nil && int(n) > c.messages*9/10
	})
	sending.Wait()
	stopFaults()
	<-injecting
	if injector.err != nil {
		t.Error(injector.err)
	}
	report := c.awaitSettled(t)
	t.Logf("%+v in %v, with %d × broker killed, %s", report, time.Since(began).Round(time.Second), restarts, injector.counts())
	if report.Inversions > 0 && !c.Unordered {
		inversions, err := describeInversions(t.Context(), c.pool)
		t.Logf("inversions (%v):\n%s\nfaults:\n%s\n%s", err, inversions, strings.Join(restartLog, "\n"), strings.Join(injector.log, "\n"))
	}
	if c.Unordered {
		report.Inversions = 0
	}
	if err := report.err(); err != nil {
		t.Error(err)
	}
}

func (c *Chaos) faults(relays, consumers *group) []Fault {
	every := func(n int) int { return c.messages / (n * (1 + c.messages/20_000)) }
	faults := []Fault{
		{"relay killed", every(7), relays.killOne},
		{"consumer killed", every(9), consumers.killOne},
		{"database disconnected", every(12), func() error { c.database.Cut(); return nil }},
	}
	if c.Broker != nil {
		faults = append(faults,
			Fault{"broker disconnected", every(12), func() error { c.Broker.Cut(); return nil }},
			Fault{"acknowledgments lost", every(10), func() error {
				c.Broker.Deafen(true)
				time.Sleep(50 * time.Millisecond)
				c.Broker.Deafen(false)
				return nil
			}})
	}
	if c.Faults != nil {
		faults = append(faults, c.Faults(every)...)
	}
	return faults
}

// awaitSettled waits until every message has an effect or is a dead letter, and the broker is idle.
func (c *Chaos) awaitSettled(t *testing.T) (r report) {
	t.Helper()
	c.await(t, "all messages to have their effect, and the broker to have none left", func() bool {
		idle, err := c.Idle()
		var readErr error
		if r, readErr = readReport(t.Context(), c.pool); readErr != nil {
			t.Fatal(readErr)
		}
		return err == nil && idle && r.isSettled()
	})
	return r
}

func (c *Chaos) start(t *testing.T, n int, role string) *group {
	t.Helper()
	g, err := newGroup(n, role, t.Output(), c.Env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	return g
}

// await calls is() until the result is true. Its time limit grows with the number of messages. The
// interval between calls grows with the duration of a call, which may count the messages.
func (c *Chaos) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	end := time.Now().Add(10*time.Minute + time.Duration(c.messages)*10*time.Millisecond)
	for {
		began := time.Now()
		if is() {
			return
		}
		if time.Now().After(end) {
			report, err := readReport(context.WithoutCancel(t.Context()), c.pool)
			t.Errorf("timed out waiting for %s; so far: %+v, %v", what, report, err)
			return
		}
		time.Sleep(min(max(50*time.Millisecond, 10*time.Since(began)), 3*time.Second))
	}
}

// injector injects faults, each by a goroutine of its own.
type injector struct {
	progress func() int

	mu    sync.Mutex
	times map[string]int
	log   []string
	err   error // the first error of an injection
}

func (i *injector) run(ctx context.Context, faults []Fault) {
	var all sync.WaitGroup
	for _, f := range faults {
		all.Go(func() {
			for {
				due := i.progress() + f.Every/2 + rand.N(f.Every)
				for i.progress() < due {
					select {
					case <-ctx.Done():
						return
					case <-time.After(50 * time.Millisecond):
					}
				}
				began := time.Now()
				err := f.Inject()
				i.mu.Lock()
				i.times[f.Name]++
				i.log = append(i.log, clock(began)+" "+f.Name)
				if err != nil && i.err == nil {
					i.err = fmt.Errorf("%s: %w", f.Name, err)
				}
				i.mu.Unlock()
			}
		})
	}
	all.Wait()
}

func (i *injector) counts() string {
	var counts []string
	for _, name := range slices.Sorted(maps.Keys(i.times)) {
		counts = append(counts, fmt.Sprintf("%d × %s", i.times[name], name))
	}
	return strings.Join(counts, ", ")
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// proxyDSN starts a proxy in front of a database, and returns the DSN of the database through the
// proxy.
func proxyDSN(t testing.TB, dsn string) (*cutproxy.Proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	proxy := Proxy(t, u.Host)
	u.Host = proxy.Addr()
	return proxy, u.String()
}

// Proxy starts a proxy in front of an address. It is closed at the end of the test.
func Proxy(t testing.TB, addr string) *cutproxy.Proxy {
	t.Helper()
	proxy, err := cutproxy.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}
