package fault

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/pgproxy"
)

func TestRunBreaksManyThingsAndLeavesEverythingWorking(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := newParty(t, c, 3, "")
	p.awaitProgress(t, 1)
	ctx, enough := context.WithTimeout(context.Background(), 30*time.Second)
	defer enough()
	faults, kinds := 0, make(map[Name]int)
	// The workers of this test are not replaced when they are killed.
	mix := Mix{Pause: 60 * time.Millisecond, Only: []Name{Stop, Connection, Session, Server}}
	err := Run(ctx, 1, Target{c, p}, mix, func(e Event) {
		faults++
		kinds[e.Kind]++
		if e.Err != "" {
			t.Errorf("%s: %s", e.Kind, e.Err)
		}
		if len(kinds) >= 12 && faults >= 30 {
			enough()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d faults of %d kinds: %v", faults, len(kinds), kinds) // a slow machine has fewer
	if faults == 0 {
		t.Error("nothing was broken")
	}
	p.awaitProgress(t, 20)
	acknowledged := p.halt(t, c)
	if n := lost(t, c, acknowledged); n > 0 {
		t.Errorf("%d of %d acknowledged keys are lost", n, len(acknowledged))
	}
}

func TestHealResumesWhatIsFrozen(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := proxies(t, c, 1)
	conn := connect(t, p.Proxy(0).DSN())
	p.Proxy(0).Conns()[0].Freeze()
	if err := heal(Target{c, p}); err != nil {
		t.Fatal(err)
	}
	if err := query(t, conn, "select 1"); err != nil {
		t.Error(err)
	}
}

func TestHealUndoesWhatIsLeftOfAnyFault(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := newParty(t, c, 2, "")
	p.awaitProgress(t, 1)
	if err := p.Signal(0, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	proxy := p.Proxy(1)
	proxy.SetLatency(time.Hour)
	proxy.Refuse(pgproxy.Freeze)
	if err := c.SetSynchronous(within(t), "nobody"); err != nil {
		t.Fatal(err)
	}
	c.Primary().Kill()
	if err := heal(Target{c, p}); err != nil {
		t.Fatal(err)
	}
	p.awaitProgress(t, 1)
}

func TestSameSeedDrawsTheSameFaults(t *testing.T) {
	t.Parallel()
	drawn := func(seed uint64) []Name {
		rng := rand.New(rand.NewPCG(seed, 0))
		var names []Name
		for range 1000 {
			names = append(names, draw(rng, Kinds()).Name)
		}
		return names
	}
	if diff := cmp.Diff(drawn(1), drawn(1)); diff != "" {
		t.Error(diff)
	}
	first := drawn(1)
	if slices.Equal(first, drawn(2)) {
		t.Error("another seed drew the same")
	}
	slices.Sort(first)
	if got := len(slices.Compact(first)); got != len(Kinds()) {
		t.Errorf("%d of %d kinds were drawn", got, len(Kinds()))
	}
}

func TestMixChoosesByNameAndGroup(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		only    []Name
		cluster bool
		want    string // names, or part of the error
	}{
		{[]Name{"kill", "cut"}, true, "kill cut"},
		{[]Name{"session"}, true, "terminate cancel"},
		{[]Name{"session"}, false, "no fault is left"},
		{[]Name{"worker", "terminate"}, false, "kill stop kill-after-claim kill-in-fn kill-before-commit kill-during-commit kill-after-commit"},
		{[]Name{"flood"}, true, `no fault "flood"`},
	} {
		chosen, err := Mix{Only: test.only}.kinds(test.cluster)
		var names []string
		for _, k := range chosen {
			names = append(names, string(k.Name))
		}
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		}
		if got != test.want && (err == nil || !strings.Contains(got, test.want)) {
			t.Errorf("%v: %s, want %s", test.only, got, test.want)
		}
	}
	if all, err := (Mix{}).kinds(true); err != nil || len(all) < 20 {
		t.Errorf("%d kinds by default, %v", len(all), err)
	}
}
