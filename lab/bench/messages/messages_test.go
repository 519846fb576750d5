package messages

import (
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/bench/runner/runnertest"
)

// The test binary is also the process that gets killed.
func TestMain(m *testing.M) {
	Work()
	runnertest.Main(m)
}

func TestContestants_PublishExactlyTheSavedMessages(t *testing.T) {
	t.Parallel()
	s := runnertest.Server(t)
	const clients, each = 3, 5
	for _, c := range out.All {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			dsn, err := s.Database(t.Context(), out.Schema, c.Prepare)
			if err != nil {
				t.Fatal(err)
			}
			b, err := openBooth(t.Context(), c, dsn, 8)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}()
			if _, err := b.load(t.Context(), clients, 2, runner.Limit{Calls: each}); err != nil {
				t.Fatal(err)
			}
			if n := b.sink.Distinct(); c.Relays && n != 0 {
				t.Errorf("%d messages are published, and no relay has started", n)
			}
			want := clients * each
			if c.Silent {
				want = 0
			}
			b.relay()
			if err := b.published(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			a, err := b.audit(t.Context())
			if (err == nil) == c.Silent { // one that publishes nothing is found
				t.Errorf("%+v, %v", a, err)
			}
			if a.Committed != clients*each || a.Twice != 0 || c.Silent && a.Lost != a.Committed {
				t.Errorf("%+v", a)
			}
		})
	}
}

func TestContestants_HaveEachEffectOnce(t *testing.T) {
	t.Parallel()
	s := runnertest.Server(t)
	const messages = 120 // of which 12 come twice
	for _, c := range in.All {
		for name, workers := range map[string]int{"one worker": 1, "three workers": 3} {
			t.Run(c.Name+", "+name, func(t *testing.T) {
				t.Parallel()
				dsn, err := s.Database(t.Context(), in.Schema, c.Prepare)
				if err != nil {
					t.Fatal(err)
				}
				pool, err := runner.Pool(t.Context(), dsn, 8)
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
				lost, doubled, err := tally(t.Context(), dsn, messages)
				if err != nil || lost != 0 || doubled != 0 && !c.Repeats {
					t.Errorf("%d lost, %d doubled, %v", lost, doubled, err)
				}
				if strings.HasPrefix(c.Name, "plain") && doubled != messages/10 {
					t.Errorf("%d messages came twice, want %d", doubled, messages/10)
				}
			})
		}
	}
}

// Not in parallel: it reads the log of the server.
func TestScenarios_MeasureWhatIdemPromises(t *testing.T) {
	who := func(name string) runner.Scenario {
		sc := runnertest.Find(t, Scenarios(true, 1), name)
		var chosen []runner.Contestant
		for _, c := range sc.Contestants {
			if len(chosen) == 0 || strings.HasPrefix(c.Name, "idem") || strings.HasPrefix(c.Name, "plain") {
				chosen = append(chosen, c)
			}
		}
		sc.Contestants = chosen
		return sc
	}
	for name, figure := range map[string]string{
		"messages/costs": "trips", "messages/saving": "p50_us/base", "messages/end-to-end": "per_s/base",
	} {
		if got := runnertest.Measure(t, who(name)); got.Figure(out.Idem.Name, figure) == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := runnertest.Measure(t, who("messages/effects/8")); got.Figure(in.Batch.Name, "per_s/base") == nil {
		t.Errorf("%+v", got)
	}
	killed := runnertest.Measure(t, who("messages/killed/out"))
	for _, figure := range []string{"lost", "phantoms", "out_of_order"} {
		if n := killed.Figure(out.Idem.Name, figure); n == nil || n[0] != 0 {
			t.Errorf("%s: %v", figure, n)
		}
	}
	killed = runnertest.Measure(t, who("messages/killed/in"))
	for _, c := range []in.Contestant{in.Handle, in.Batch, in.Bulk} {
		if killed.Figure(c.Name, "killed")[0] == 0 || killed.Figure(c.Name, "lost")[0] != 0 || killed.Figure(c.Name, "doubled")[0] != 0 {
			t.Errorf("%s: %+v", c.Name, killed)
		}
	}
	if doubled := killed.Figure(in.Plain.Name, "doubled"); doubled[0] == 0 {
		t.Error("a plain transaction for each delivery has doubled no effect")
	}
}
