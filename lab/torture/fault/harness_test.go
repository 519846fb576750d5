package fault

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/torture/cluster"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/waiting"
)

// The test binary is also the worker.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "as-worker" {
		work(os.Args[2])
	}
	os.Exit(m.Run())
}

const patience = waiting.Limit

// within returns a context that ends with the test or after d.
var within = waiting.Within

// require skips a test that this machine cannot run, like [optional.Require] for a missing program.
func require(t *testing.T, impossible error) {
	t.Helper()
	if _, missing := errors.AsType[optional.MissingError](impossible); impossible != nil && !missing {
		t.Skip(impossible)
	}
	optional.Require(t, impossible)
}

func bin(t *testing.T) string {
	t.Helper()
	found, err := pgserver.Find(os.Getenv("IDEM_TEST_POSTGRES_BIN"))
	optional.Require(t, err)
	return found[0].Dir
}

// startCluster starts a primary with the tables of the torture.
func startCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(within(t), cluster.Options{Bin: bin(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Primary().LogTail())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	install(t, c)
	return c
}

func install(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if err := ledger.Install(within(t), c.DSN()); err != nil {
		t.Fatal(err)
	}
	mustExec(t, c, "create table done (key text)")
}

func mustExec(t *testing.T, c *cluster.Cluster, sql string) {
	t.Helper()
	if err := c.Exec(within(t), sql); err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, c *cluster.Cluster, sql string, args ...any) int {
	t.Helper()
	var n int
	err := c.Do(within(t), func(conn *pgx.Conn) error { return conn.QueryRow(within(t), sql, args...).Scan(&n) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// log returns the log of the primary.
func log(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	text, err := os.ReadFile(c.Primary().Log())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// eventually repeats a check until it succeeds.
var eventually = waiting.Until

// kind returns the kind with the name.
func kind(t *testing.T, name Name) Kind {
	t.Helper()
	kinds := Kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		t.Fatalf("there is no kind %q", name)
	}
	require(t, kinds[i].Possible)
	return kinds[i]
}

// inject injects one fault with the seed and returns its event, if there is one.
func inject(t *testing.T, target Target, name Name, seed uint64) *Event {
	t.Helper()
	var event *Event
	_ = target.inject(within(t), injectLimits, kind(t, name), rand.New(rand.NewPCG(seed, seed)), func(e Event) { event = &e })
	if event != nil && event.Err != "" {
		t.Errorf("%s: %s", name, event.Err)
	}
	return event
}

// tries is how often a test repeats what a slow machine may miss.
const tries = 200

// injectOne injects a fault until it has found something to break. A fault waits for its moment for
// a limited time only.
func injectOne(t *testing.T, target Target, name Name, seed uint64) Event {
	t.Helper()
	var event *Event
	for n := 0; event == nil && n < tries; n++ {
		event = inject(t, target, name, seed)
	}
	if event == nil {
		t.Errorf("%s found nothing to break", name)
		return Event{}
	}
	if event.Kind != name || event.At == 0 {
		t.Errorf("the event is %+v", event)
	}
	return *event
}

func connect(t *testing.T, dsn string) *pgconn.PgConn {
	t.Helper()
	conn, err := pgconn.Connect(within(t), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.Close(ctx)
	})
	return conn
}

func query(t *testing.T, conn *pgconn.PgConn, sql string) error {
	t.Helper()
	_, err := conn.Exec(within(t), sql).ReadAll()
	return err
}

// whileInjecting calls step until the fault has been injected or step returns false.
func whileInjecting(t *testing.T, target Target, name Name, seed uint64, step func(n int) bool) Event {
	t.Helper()
	injected := make(chan Event, 1)
	go func() {
		defer close(injected)
		injected <- injectOne(t, target, name, seed)
	}()
	for n := 0; len(injected) == 0 && step(n); n++ {
	}
	return <-injected
}

// awaitNoSession waits until the server has no client.
func awaitNoSession(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	eventually(t, "there is no session", func() bool { return count(t, c, "select count(*) "+victims) == 0 })
}
