package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/torture/cluster"
	"github.com/idem-go/idem/lab/waiting"
)

// The test binary is also a process that starts a cluster and is killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "with-cluster" {
		c, err := cluster.Start(context.Background(), cluster.Options{Bin: os.Args[2], Bouncer: os.Args[3] == "true"})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(c.Primary().Data())
		select {}
	}
	os.Exit(m.Run())
}

const patience = waiting.Limit

// within returns a context that ends with the test or after d.
var within = waiting.Within

func bin(t *testing.T) string {
	t.Helper()
	found, err := pgserver.Find(os.Getenv("IDEM_TEST_POSTGRES_BIN"))
	optional.Require(t, err)
	return found[0].Dir
}

func start(t *testing.T, opts cluster.Options) *cluster.Cluster {
	t.Helper()
	if opts.Bouncer {
		optional.Program(t, "pgbouncer")
	}
	opts.Bin = bin(t)
	c, err := cluster.Start(within(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func query(t *testing.T, dsn, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(within(t), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var s string
	if err := conn.QueryRow(within(t), sql, pgx.QueryExecModeExec).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryAddressLeadsToThePrimary(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{Bouncer: true, Standby: cluster.Asynchronous, Settings: []string{"work_mem=5MB"}})
	for name, dsn := range map[string]string{"DSN": c.DSN(), "BouncerDSN": c.BouncerDSN()} {
		got := query(t, dsn, "select pg_is_in_recovery() || ' ' || current_setting('work_mem') || ' ' || current_setting('fsync')")
		if got != "false 5MB on" {
			t.Errorf("%s: %s", name, got)
		}
	}
	standby := strings.Replace(c.Standby().DSN(), "postgres?", "postgres?target_session_attrs=standby&", 1)
	if got := query(t, standby, "select pg_is_in_recovery()::text"); got != "true" {
		t.Errorf("the standby is in recovery: %s", got)
	}
}

func TestClusterOfAProcessThatIsKilledLeavesNothing(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can be asked for this")
	}
	_, err := optional.Find("pgbouncer")
	cmd := exec.Command(os.Args[0], "with-cluster", bin(t), fmt.Sprint(err == nil))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var data string
	if _, err := fmt.Fscanln(out, &data); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	dir := filepath.Dir(filepath.Dir(data))
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		_, err := os.Stat(dir)
		left := processesIn(dir)
		if err != nil && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is there: %v; processes: %v", dir, err == nil, left)
		}
	}
}

// processesIn returns the processes with dir in their command line.
func processesIn(dir string) []string {
	var found []string
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		if line, _ := os.ReadFile(path); strings.Contains(string(line), dir) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

func TestWhatWasAcknowledgedSurvivesSynchronousFailovers(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{Standby: cluster.Synchronous, Bouncer: true})
	if err := c.Exec(within(t), "create table acknowledged ()"); err != nil {
		t.Fatal(err)
	}
	addresses := []string{c.DSN(), c.BouncerDSN()}
	for _, want := range []string{"1", "2"} {
		if err := c.Exec(within(t), "insert into acknowledged default values"); err != nil {
			t.Fatal(err)
		}
		old := c.Primary()
		if err := c.Failover(within(t)); err == nil {
			t.Fatal("a primary that is alive was fenced")
		}
		old.Kill()
		if err := c.Failover(within(t)); err != nil {
			t.Fatal(err)
		}
		if c.Primary() == old || c.Standby() != nil {
			t.Fatal("the old primary was not replaced")
		}
		if err := c.AwaitReady(within(t)); err != nil {
			t.Fatal(err)
		}
		for _, dsn := range addresses {
			if got := query(t, dsn, "select count(*)::text from acknowledged"); got != want {
				t.Errorf("%s rows, want %s", got, want)
			}
		}
		if err := c.AddStandby(within(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClusterIsReadyAgainAtTheSameAddressAfterACrash(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{})
	before := c.DSN()
	c.Primary().Kill()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := c.AwaitReady(ctx); err == nil {
		t.Error("a dead primary is ready")
	}
	if err := c.Primary().Start(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitReady(within(t)); err != nil || c.DSN() != before {
		t.Errorf("%v, or another address", err)
	}
}
