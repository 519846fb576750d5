package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/sidebyside"
)

// The test binary is also the process that gets killed.
func TestMain(m *testing.M) {
	if role := os.Getenv(workerRole); role != "" {
		panic(work(role))
	}
	os.Exit(run(m))
}

// shared is the server of all tests, or why there is none.
var shared struct {
	*server
	err error
}

func run(m *testing.M) int {
	s, err := sidebyside.StartServer(context.Background(), "", false)
	if err == nil {
		defer s.Close()
	}
	shared.server, shared.err = &server{s}, err
	return m.Run()
}

// testServer returns the server that all tests share.
func testServer(t *testing.T) *server {
	t.Helper()
	optional.Require(t, shared.err)
	return shared.server
}

func TestEveryContestantChargesAndConfirmsEachOrderOnce(t *testing.T) {
	t.Parallel()
	s := testServer(t)
	for _, c := range append(contestant.All(), contestant.IdemOnce()) {
		dsn, err := s.database(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			other, err := bank.Open(0, false)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			b, err := openBooth(t.Context(), c, contestant.Place{DSN: dsn}, other.URL, 8)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			made, err := takeSample(t.Context(), b, 3, 0, 2)
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(t.Context(), dsn, other, len(made.latencies)); err != nil {
				t.Error(err)
			}
		})
	}
}

// The whole of it, with those two that its bars compare first. What it says of time is not looked at. It runs alone, because it
// counts the commits of the server.
func TestRunMeasuresEverythingAndSaysSo(t *testing.T) {
	r, err := measure(t.Context(), testServer(t), sidebyside.Options{Quick: true, Only: "^(idem|plain)"})
	if err != nil {
		t.Fatal(err)
	}
	text := r.String()
	for _, want := range []string{
		"its figures say nothing", "| commits of Tx, Call, Tx: 2 | 2.00 | met |", "| no order charged twice, all confirmed | 0 twice, 9 of 9 confirmed | met |",
		"0 twice, 3 of 3 parked | met |", "bank at 20ms, 8 clients", "| idem operation | any Worker",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the report:\n%s", want, text)
		}
	}
}

func TestOrderThatIsChargedTwiceOrNotConfirmedFailsTheSample(t *testing.T) {
	t.Parallel()
	s := testServer(t)
	ctx := t.Context()
	for _, test := range []struct {
		name    string
		keyless bool
		charges int
		confirm bool
		ok      bool
	}{
		{"all is well", false, 1, true, true},
		{"asked twice with one key", false, 2, true, true},
		{"charged twice", true, 2, true, false},
		{"not charged", false, 0, true, false},
		{"not confirmed", false, 1, false, false},
	} {
		dsn, err := s.database(ctx, contestant.Plain())
		if err != nil {
			t.Fatal(err)
		}
		other, err := bank.Open(0, test.keyless)
		if err != nil {
			t.Fatal(err)
		}
		client, order := bank.NewClient(other.URL, 0), newOrder()
		for range test.charges {
			if _, err := client.Charge(ctx, order, "key"); err != nil {
				t.Fatal(err)
			}
		}
		sql := "insert into orders (id, customer, total) values ('" + order + "', 7, 1)"
		if test.confirm {
			sql += "; update orders set confirmed_at = now()"
		}
		if err := sidebyside.Execute(ctx, dsn, sql); err != nil {
			t.Fatal(err)
		}
		if err := verify(ctx, dsn, other, 1); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
		client.Close()
		other.Close()
	}
}

func TestBankHoldsTheFirstAttemptAloneUntilItIsReleased(t *testing.T) {
	t.Parallel()
	other, err := bank.Open(0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.Hold()
	client := bank.NewClient(other.URL, 3)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := make(chan string, 1)
	go func() {
		charge, _ := client.Charge(ctx, "order", "key")
		first <- charge
	}()
	if err := other.Await(ctx, func(all map[string][]bank.Attempt) bool { return len(all["order"]) == 1 }); err != nil {
		t.Fatal(err)
	}
	second, err := client.Charge(ctx, "order", "key")
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-first:
		t.Error("the first attempt was answered while it was to be held")
	default:
	}
	other.Release(0)
	if got := <-first; got != second {
		t.Errorf("one key has two charges: %q and %q", got, second)
	}
	if books := other.Books(); books != (bank.Books{Orders: 1, Charges: 1}) {
		t.Errorf("the books have %+v", books)
	}
}

func TestBarsAreJudgedByWhatWasMeasured(t *testing.T) {
	t.Parallel()
	r := &results{
		Costs: []cost{{name: contestant.Plain().Name, trips: 6, commits: 2}, {name: contestant.Idem().Name, trips: 11, commits: 3}},
		Kills: []*resumption{{
			contestant: contestant.Idem(), victims: 2, after: []time.Duration{time.Second, 2 * time.Second}, orders: 2, confirmed: 1,
		}},
		Crowd: 3 * time.Second,
	}
	bars := r.bars()
	if len(bars) != 5 {
		t.Errorf("%d bars: %+v", len(bars), bars)
	}
	for _, b := range bars {
		if b.Met {
			t.Errorf("met: %+v", b)
		}
	}
}
