package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/torture/config"
	"github.com/idem-go/idem/lab/torture/workerset"
	"github.com/idem-go/idem/lab/torture/workload"
	"github.com/idem-go/idem/lab/waiting"
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

// On a busy machine a worker is asked to end before it has installed its handler.
func TestWorker_MayBeAskedToEndAtOnce(t *testing.T) {
	t.Parallel()
	for _, installed := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "history")
		w, err := workerset.Launch(config.Config{File: file, DSN: "postgres://nobody@127.0.0.1:1/none", Goroutines: 1, Keys: 1})
		if err != nil {
			t.Fatal(err)
		}
		if installed { // the worker makes the file after it has installed its handler
			waiting.Until(t, "the history", func() bool { _, err := os.Stat(file); return err == nil })
		}
		if err := w.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if killed, err := w.Wait(); err != nil || installed && killed {
			t.Errorf("installed: %t, killed: %t, error: %v", installed, killed, err)
		}
	}
}

func TestBoth_ReturnsTheErrorsOfBoth(t *testing.T) {
	t.Parallel()
	one, other := errors.New("one"), errors.New("other")
	err := both(t.Context(), func(context.Context) error { return one }, func(ctx context.Context) error {
		<-ctx.Done()
		return other
	})
	if !errors.Is(err, one) || !errors.Is(err, other) {
		t.Error(err)
	}
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
	if judged.Histories == 0 {
		t.Error("no history was judged by the model")
	}
	for _, u := range judged.Unchecked { // too large for the model
		t.Logf("unchecked: %s", u)
	}
	if t.Logf("%d calls, %d faults", judged.Calls, len(judged.Faults)); judged.Calls == 0 || len(judged.Faults) == 0 {
		t.Error("nothing was tested")
	}
}
