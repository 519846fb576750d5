package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/workload"
)

// The test binary is also the worker.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		if err := workload.Work(os.Stdin); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// This is a short torture with everything that a single cluster survives.
func TestEveryPromiseIsKept(t *testing.T) {
	optional.Program(t, "postgres")
	dir := t.TempDir()
	c, err := parse([]string{"-seed", "1", "-duration", "8s", "-dir", dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	judged, err := c.mainLeg(c.duration).runAndJudge(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range judged.Violations {
		t.Error(v)
	}
	for _, failure := range judged.Failures {
		t.Error(failure)
	}
	// A slow machine may not reach these.
	for _, u := range judged.Unchecked {
		t.Logf("unchecked: %s", u)
	}
	outcomes := judged.Tally.ByVerb["Do"]
	for _, o := range []history.Outcome{history.Replayed, history.Mismatch, history.InProgress, history.FnFailed, history.Open} {
		if outcomes[o] == 0 {
			t.Logf("no call of Do was %s", o)
		}
	}
	t.Logf("%d calls, %d faults", judged.Tally.Operations, len(judged.Faults))
	if outcomes[history.Executed] == 0 || judged.Tally.Exits < c.workers {
		t.Errorf("%d calls were executed, %d workers ended in order", outcomes[history.Executed], judged.Tally.Exits)
	}

	t.Run("and the same files are judged the same again", func(t *testing.T) {
		again, err := judge(filepath.Join(dir, "main"))
		if err != nil || again.Tally.Operations != judged.Tally.Operations || len(again.Faults) != len(judged.Faults) {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

func TestFlagsChooseTheLegs(t *testing.T) {
	t.Parallel()
	possible := 0
	for _, l := range fault.Legs() {
		if l.Possible == nil {
			possible++
		}
	}
	for _, test := range []struct {
		args []string
		main bool
		legs int
	}{
		{nil, true, possible},
		{[]string{"-only", "none"}, true, 0},
		{[]string{"-only", "kill,cut"}, true, 0},
		{[]string{"-only", "failover-sync"}, false, 1},
		{[]string{"-only", "kill", "-only", "failover-sync"}, true, 1},
		{[]string{"-database", "postgres://somewhere"}, true, 0},
	} {
		c, err := parse(test.args)
		if err != nil {
			t.Fatal(err)
		}
		legs, err := c.legs()
		if err != nil {
			t.Errorf("%q: %v", test.args, err)
			continue
		}
		var total time.Duration
		for _, l := range legs {
			total += l.duration
		}
		hasMain := slices.ContainsFunc(legs, func(l *leg) bool { return l.name == "main" })
		if hasMain != test.main || len(legs) != test.legs+map[bool]int{true: 1}[test.main] {
			t.Errorf("%q: %d legs, main %v", test.args, len(legs), hasMain)
		}
		if total > c.duration || total < c.duration*9/10 {
			t.Errorf("%q: %v in all, %v were asked for", test.args, total, c.duration)
		}
	}
}
