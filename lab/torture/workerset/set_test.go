package workerset_test

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
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

func start(t *testing.T, change func(*workerset.Options)) *workerset.Set {
	t.Helper()
	dsn := pgtest.DSN(t)
	if err := ledger.Install(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	options := workerset.Options{Dir: t.TempDir(), Seed: 1, DSNs: []string{dsn, dsn}, Goroutines: 4, Keys: 4, KeyLife: time.Second}
	change(&options)
	c, err := workerset.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(within(t)); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// within returns a context that ends with the test or after d.
var within = waiting.Within

func operations(t *testing.T, c *workerset.Set) []*history.Operation {
	t.Helper()
	operations, err := history.Operations(c.Histories())
	if err != nil {
		t.Fatal(err)
	}
	return operations
}

// await waits until the history has calls that satisfy the test.
func await(t *testing.T, c *workerset.Set, what string, fits func(*history.Operation) bool) {
	t.Helper()
	for ctx := within(t); !slices.ContainsFunc(operations(t, c), fits); {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func returned(o *history.Operation) bool { return o.Outcome != history.Open }

func TestAKilledWorkerIsReplacedAndItsHistoryKept(t *testing.T) {
	t.Parallel()
	c := start(t, func(*workerset.Options) {})
	await(t, c, "the first worker", func(o *history.Operation) bool { return returned(o) && o.Op.Slot() == 1 })
	if err := c.Signal(1, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := history.NewOp(1, 1, 1)
	await(t, c, "its successor", func(o *history.Operation) bool { return returned(o) && o.Op.Process() == second.Process() })
	first := history.NewOp(1, 0, 1)
	await(t, c, "what it left open", func(o *history.Operation) bool { return o.Outcome == history.Open && o.Op.Process() == first.Process() })
}

func TestWorkersEndInOrderWithoutLeavingAnything(t *testing.T) {
	t.Parallel()
	c := start(t, func(*workerset.Options) {})
	await(t, c, "a call", returned)
	if err := c.Signal(0, syscall.SIGSTOP); err != nil { // it is told to go on
		t.Fatal(err)
	}
	if err := c.Stop(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, path := range c.Histories() {
		if exit, err := history.Last(path); err != nil || exit.Kind != history.KindExit || exit.Leaks != "" {
			t.Errorf("%s: %+v, %v", path, exit, err)
		}
	}
	for _, o := range operations(t, c) {
		if !returned(o) {
			t.Errorf("open: %v", o)
		}
	}
}

func TestTheWorkersMakeAsManyCallsAsTheyShould(t *testing.T) {
	t.Parallel()
	c := start(t, func(o *workerset.Options) { o.Ops = 301 })
	select {
	case <-c.Done():
	case <-within(t).Done():
		t.Fatal("they went on")
	}
	if n := len(operations(t, c)); n != 301 {
		t.Errorf("%d calls", n)
	}
}
