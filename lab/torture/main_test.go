package main

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/torture/fault"
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
	judged := c.mainLeg(c.duration).runAndJudge(ctx)
	for _, v := range judged.Violations {
		t.Error(v)
	}
	for _, failure := range judged.Failures {
		t.Error(failure)
	}
	for _, u := range judged.Unchecked { // a slow machine
		t.Logf("unchecked: %s", u)
	}
	if t.Logf("%d calls, %d faults", judged.Calls, len(judged.Faults)); judged.Calls == 0 || len(judged.Faults) == 0 {
		t.Error("nothing was tested")
	}
}

func TestFlagsChooseTheLegs(t *testing.T) {
	t.Parallel()
	possible := 0
	for _, l := range fault.Legs(0) {
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
