package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/sidebyside"
)

// The test binary is also the process that gets killed.
func TestMain(m *testing.M) {
	if text := os.Getenv(workerRole); text != "" {
		if err := work(text); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(run(m))
}

// shared is the server of all tests, or why there is none.
var shared struct {
	*sidebyside.Server
	err error
}

func run(m *testing.M) int {
	if shared.Server, shared.err = sidebyside.StartServer(context.Background(), "", false); shared.err == nil {
		defer shared.Close()
	}
	return m.Run()
}

// testServer returns the server that all tests share.
func testServer(t *testing.T) *sidebyside.Server {
	t.Helper()
	optional.Require(t, shared.err)
	return shared.Server
}

func TestEveryContestantPublishesWhatItHasSavedAndNothingElse(t *testing.T) {
	t.Parallel()
	s := testServer(t)
	const clients, each, found = 3, 5, 40
	for _, c := range out.All() {
		dsn, err := s.Database(t.Context(), out.Schema, c.Prepare)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			b, err := openBooth(t.Context(), c, dsn, 8)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := takeSample(t.Context(), b, clients, 2, 0, each); err != nil {
				t.Fatal(closing(b, err))
			}
			if n := b.sink.Distinct(); c.Relays && n != 0 {
				t.Errorf("%d messages are published, and nobody has relayed", n)
			}
			want := clients * each
			if c.Silent {
				want = 0
			}
			b.relay()
			if err := b.published(t.Context(), want); err != nil {
				t.Fatal(closing(b, err))
			}
			a, err := b.audit(t.Context(), dsn)
			if err != nil && !c.Silent {
				t.Error(err)
			}
			if a.Committed != clients*each || a.Twice != 0 || c.Silent && a.Lost != a.Committed {
				t.Errorf("%+v", a)
			}
			if relayer, ok := b.Runner.(out.Relayer); ok != c.Relays {
				t.Errorf("it says that it relays: %v", c.Relays)
			} else if ok {
				stockUp(t, b, relayer, found, want+found)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// stockUp adds messages without their orders, and sees them published.
func stockUp(t *testing.T, b *booth, relayer out.Relayer, n, total int) {
	t.Helper()
	orders := make([]out.Order, n)
	for i := range orders {
		orders[i] = out.NewOrder(1 + i%3)
	}
	if err := relayer.Stock(t.Context(), orders); err != nil {
		t.Fatal(err)
	}
	if err := b.published(t.Context(), total); err != nil {
		t.Fatal(err)
	}
	for _, order := range orders {
		if _, ok := b.sink.At(order.ID); !ok {
			t.Errorf("%s was not published", order.ID)
		}
	}
}

func TestEveryContestantHasTheEffectOfEachMessageOnceWhereItSaysSo(t *testing.T) {
	t.Parallel()
	s := testServer(t)
	const messages = 120 // of which 12 come twice
	for _, c := range in.All() {
		for name, workers := range map[string]int{"one worker": 1, "three workers": 3} {
			dsn, err := s.Database(t.Context(), in.Schema, c.Prepare)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(c.Name+", "+name, func(t *testing.T) {
				t.Parallel()
				pool, err := openPool(t.Context(), dsn, 8)
				if err != nil {
					t.Fatal(err)
				}
				defer pool.Close()
				source := broker.NewSource(messages, 0)
				if err := c.Consume(t.Context(), in.Place{Pool: pool, Source: source.Open(), Workers: workers, Batch: 10}); err != nil {
					t.Fatal(err)
				}
				if source.Made() != messages || source.Left() != 0 {
					t.Errorf("%d messages were made, %d deliveries are left", source.Made(), source.Left())
				}
				found, err := tally(t.Context(), dsn, messages)
				if err != nil || found.lost != 0 || found.doubled != 0 && !c.Repeats {
					t.Errorf("%+v, %v", found, err)
				}
				if strings.HasPrefix(c.Name, "plain") && found.doubled != messages/10 {
					t.Errorf("%d messages came twice, want %d", found.doubled, messages/10)
				}
			})
		}
	}
}

// The whole of it, with those that its bars compare. What it says of time is not looked at. It runs alone, because it reads the
// server's log.
func TestRunMeasuresEverythingAndSaysSo(t *testing.T) {
	r, err := measure(t.Context(), testServer(t), sidebyside.Options{Quick: true, Only: "^(idem|plain|outbox by hand)"})
	if err != nil {
		t.Fatal(err)
	}
	text := r.String()
	for _, want := range []string{
		"its figures say nothing", "| Queue costs no round trip | 3.00 against 3.00 | met |", "| WAL of the transaction: at most 1.15 times",
		"| Relay: at least half of", "| Batch of 1,000: at least 0.6 of", "loses, makes up and reorders nothing | 0 lost, 0 made up, 0 out of order",
		"idem inbox, Batch loses and doubles no effect | 0 lost, 0 doubled, of 400 | met |", "| idem inbox, Bulk | the effect is committed once", "| idem outbox, in a batch | 3.0 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the report:\n%s", want, text)
		}
	}
	for _, c := range r.killed {
		if c.kills == 0 {
			t.Errorf("no process of %s was killed", c.name)
		}
	}
}

func TestSampleFailsIfAMessageIsLost(t *testing.T) {
	t.Parallel()
	s := testServer(t)
	dsn, err := s.Database(t.Context(), out.Schema, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := openBooth(t.Context(), out.Plain(), dsn, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := takeSample(t.Context(), b, 1, 1, 0, 2); err != nil {
		t.Fatal(err)
	}
	if a, err := b.audit(t.Context(), dsn); err == nil || a.Lost != 2 {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestBarsAreJudgedByWhatWasMeasured(t *testing.T) {
	t.Parallel()
	r := &results{
		effects: []*cell{{workers: 1, entries: []*entry{{name: in.PlainBatch().Name, perSecond: []float64{1000}}, {name: in.Batch().Name, perSecond: []float64{599}}}}},
		stock:   []*entry{{name: out.Idem().Name, perSecond: []float64{499}}, {name: out.ByHand().Name, perSecond: []float64{1000}}},
		costs: []cost{
			{name: out.Plain().Name, trips: 4, wal: 500}, {name: out.PlainPiped().Name, trips: 3, wal: 500}, {name: out.ByHand().Name, wal: 1000},
			{name: out.Idem().Name, trips: 5, wal: 1151}, {name: out.IdemPiped().Name, trips: 4},
		},
		killed: []*casualty{
			{name: out.Idem().Name, account: broker.Account{Committed: 9, Inverted: 1}},
			{name: in.Handle().Name, in: true, made: 9, tallied: tallied{lost: 1}}, {name: in.Bulk().Name, in: true, made: 9, tallied: tallied{doubled: 1}},
		},
	}
	bars := r.bars()
	if len(bars) != 7 {
		t.Errorf("%d bars: %+v", len(bars), bars)
	}
	for _, b := range bars {
		if b.Met {
			t.Errorf("met: %+v", b)
		}
	}
}

func TestNumbersHaveCommas(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 20_000_000: "20,000,000"} {
		if got := number(n); got != want {
			t.Errorf("%d is %q", n, got)
		}
	}
}

func TestProcessThatEndsByItselfEndsItsContext(t *testing.T) {
	t.Parallel()
	process, err := role{Out: "nobody"}.start()
	if err != nil {
		t.Fatal(err)
	}
	living, cancel := alive(t.Context(), process, time.Minute)
	defer cancel()
	<-living.Done()
	if err := context.Cause(living); !errors.Is(err, errEnded) {
		t.Error(err)
	}
}
