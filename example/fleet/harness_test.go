package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/example/fleet/shop"
	"github.com/idem-go/idem/example/orders/bank"
	"github.com/idem-go/idem/idemclient"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

const (
	tenant   = "acme"
	patience = waiting.Limit
)

// TestMain runs a mover instead, where that is asked for, which is there to be killed.
func TestMain(m *testing.M) {
	if stage := os.Getenv("FLEET_MOVE_UNTIL"); stage != "" {
		moveUntil(fleet.Stage(stage))
	}
	os.Exit(m.Run())
}

// moveUntil moves the tenant, says when it is at the stage, and goes no further.
func moveUntil(stage fleet.Stage) {
	ctx := context.Background()
	from, to := cluster("west", os.Getenv("FLEET_WEST")), cluster("east", os.Getenv("FLEET_EAST"))
	_, err := fleet.Move(ctx, from, to, tenant, fleet.MoveConfig{Tables: shop.Tables, MaxPause: time.Minute, Progress: func(s fleet.Stage, _ int64) {
		if s == stage {
			fmt.Println("reached")
			select {}
		}
	}})
	fmt.Println("not reached:", err)
	os.Exit(1)
}

func cluster(name, dsn string) fleet.Cluster {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		panic(err)
	}
	config.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		panic(err)
	}
	return fleet.Cluster{Name: name, Pool: pool}
}

// world is two clusters, a bank, and an instance of the service.
type world struct {
	t                *testing.T
	west, east       fleet.Cluster
	westDSN, eastDSN string
	shop             *shop.Shop
	url, bankURL     string
}

// partitions divide the tables that idem partition divides.
const partitions = `
	DROP TABLE idem.records_whole, idem.inbox_whole;
	DO $$ BEGIN
		FOR part IN 0 .. 3 LOOP
			EXECUTE format('CREATE TABLE idem.records_%s PARTITION OF idem.records FOR VALUES WITH (MODULUS 4, REMAINDER %s)', part, part);
			EXECUTE format('CREATE TABLE idem.inbox_%s PARTITION OF idem.inbox FOR VALUES WITH (MODULUS 4, REMAINDER %s)', part, part);
		END LOOP;
	END $$`

// divided are those tables, without their partitions.
const divided = `
	ALTER TABLE idem.records RENAME TO records_whole;
	ALTER TABLE idem.inbox RENAME TO inbox_whole;
	CREATE TABLE idem.records (LIKE idem.records_whole INCLUDING ALL EXCLUDING INDEXES, PRIMARY KEY (scope, key)) PARTITION BY HASH (scope, key);
	CREATE TABLE idem.inbox (LIKE idem.inbox_whole INCLUDING ALL EXCLUDING INDEXES, PRIMARY KEY (consumer, source, id)) PARTITION BY HASH (consumer, source, id);`

// newWorld makes the clusters, of which those that are named have tables with partitions.
func newWorld(t *testing.T, parted ...string) *world {
	t.Helper()
	w := &world{t: t, westDSN: pgtest.DSN(t), eastDSN: pgtest.DSN(t)}
	few := func(c *pgxpool.Config) { c.MaxConns = 12 }
	w.west, w.east = fleet.Cluster{Name: "west", Pool: pgtest.Open(t, w.westDSN, few)}, fleet.Cluster{Name: "east", Pool: pgtest.Open(t, w.eastDSN, few)}
	for _, c := range []fleet.Cluster{w.west, w.east} {
		schema := shop.Schema
		if slices.Contains(parted, c.Name) {
			schema += ";" + divided + partitions
		}
		if _, err := c.Pool.Exec(t.Context(), schema); err != nil {
			t.Fatal(err)
		}
		if err := fleet.Install(t.Context(), c, shop.Tables); err != nil {
			t.Fatal(err)
		}
	}
	if err := fleet.Place(t.Context(), w.west, tenant); err != nil {
		t.Fatal(err)
	}
	return w
}

// open starts the bank and the service.
func (w *world) open() {
	w.t.Helper()
	b, err := bank.Open(filepath.Join(w.t.TempDir(), "ledger"), time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	bankServer := httptest.NewServer(b)
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	if os.Getenv("FLEET_LOG") != "" {
		logger = slog.Default()
	}
	s, err := shop.New([]fleet.Cluster{w.west, w.east}, bankServer.URL, logger)
	if err != nil {
		w.t.Fatal(err)
	}
	server := httptest.NewServer(s)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.t.Cleanup(func() {
		server.Close()
		stop()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		bankServer.Close()
		_ = b.Close()
	})
	w.shop, w.url, w.bankURL = s, server.URL, bankServer.URL
}

func (w *world) move(from, to fleet.Cluster, config fleet.MoveConfig) fleet.Report {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	config.Tables = shop.Tables
	if config.MaxPause == 0 {
		config.MaxPause = time.Minute // the machine may be busy with other tests
	}
	report, err := fleet.Move(ctx, from, to, tenant, config)
	if err != nil {
		w.t.Fatal(err)
	}
	return report
}

// order sends a request until it has an answer, and returns that.
func (w *world) order(ctx context.Context, key string, o shop.Order) (string, error) {
	path := "/orders"
	if o.Card != "" {
		path = "/checkouts"
	}
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/"+tenant+path, bytes.NewReader(body))
		if err != nil {
			return "", err
		}
		r.Header.Set("Idempotency-Key", key)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		got, err := io.ReadAll(response.Body)
		response.Body.Close()
		switch {
		case err != nil:
			return "", err
		case response.StatusCode == http.StatusCreated:
			return string(got), nil
		case response.StatusCode < 500 && response.StatusCode != http.StatusConflict && response.StatusCode != http.StatusAccepted:
			return "", fmt.Errorf("%s: %s", response.Status, got)
		}
		time.Sleep(20 * time.Millisecond) // as a client does before it asks again
	}
}

// load is what clients have been told.
type load struct {
	mu      sync.Mutex
	answers map[string]string // by key
	orders  map[string]shop.Order
	waits   []time.Duration
	stop    context.CancelFunc
	clients sync.WaitGroup
}

// load lets clients order, each request two times at once or one after the other, until it is stopped.
func (w *world) load(clients int) *load {
	l := &load{answers: map[string]string{}, orders: map[string]shop.Order{}}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(w.t.Context())
	for client := range clients {
		l.clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.once(w, client, n)
			}
		})
	}
	w.t.Cleanup(func() { l.stop(); l.clients.Wait() })
	return l
}

func (l *load) once(w *world, client, n int) {
	key := idemclient.NewKey()
	o := shop.Order{Customer: "customer-" + strconv.Itoa(client%3), Request: key, Cents: 100 + int64(n%900)}
	if n%5 == 0 {
		o.Card = bank.CardGood
	}
	began := time.Now()
	var both sync.WaitGroup
	var answers [2]string
	var failed [2]error
	for i := range answers {
		both.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			answers[i], failed[i] = w.order(ctx, key, o)
		})
		if rand.IntN(2) == 0 {
			both.Wait()
		}
	}
	both.Wait()
	if failed[0] != nil || failed[1] != nil || answers[0] != answers[1] {
		w.t.Errorf("one client is told %q and %v, another %q and %v", answers[0], failed[0], answers[1], failed[1])
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[key], l.orders[key] = answers[0], o
	l.waits = append(l.waits, time.Since(began))
}

// atLeast returns when so many more requests have been answered.
func (l *load) atLeast(more int) {
	l.mu.Lock()
	want := len(l.answers) + more
	l.mu.Unlock()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		n := len(l.answers)
		l.mu.Unlock()
		if n >= want {
			return
		}
	}
}

// end stops the clients, and holds the books of both clusters and of the bank to what they were told.
func (l *load) end(w *world, home, other fleet.Cluster) {
	w.t.Helper()
	l.stop()
	l.clients.Wait()
	eventually(w.t, "each order is billed", func() bool {
		return number(w.t, home.Pool, "select count(*) from orders") == number(w.t, home.Pool, "select count(*) from bills") &&
			number(w.t, home.Pool, "select count(*) from idem.outbox") == 0
	})
	rows, err := home.Pool.Query(w.t.Context(), "select request, id::text, charge <> '' from orders")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	made := map[string]string{}
	paid := 0
	for rows.Next() {
		var request, id string
		var charged bool
		if err := rows.Scan(&request, &id, &charged); err != nil {
			w.t.Fatal(err)
		}
		if made[request] != "" {
			w.t.Errorf("a request was executed twice")
		}
		made[request] = id
		if charged {
			paid++
		}
	}
	for key, answer := range l.answers {
		if made[key] != answer {
			w.t.Errorf("a client was told of order %q, and there is %q", answer, made[key])
		}
	}
	if len(made) != len(l.answers) {
		w.t.Errorf("%d orders, and clients were told of %d", len(made), len(l.answers))
	}
	if charges := w.charges(); charges != paid {
		w.t.Errorf("the bank has %d charges, for %d orders", charges, paid)
	}
	for what, query := range map[string]string{
		"bills out of order":                    "select count(*) from bills where not in_order",
		"records without an end":                "select count(*) from idem.records where state not in ('completed', 'failed')",
		"operations without an end":             "select count(*) from idem.operations where ended_at is null",
		"dead letters":                          "select count(*) from idem.dead_letters",
		"orders with a number that another has": "select count(*) - count(distinct (customer, number)) from orders",
	} {
		if n := number(w.t, home.Pool, query); n != 0 {
			w.t.Errorf("%d %s", n, what)
		}
	}
	w.expectNothing(other)
	for key, answer := range l.answers {
		if again, err := w.order(w.t.Context(), key, l.orders[key]); err != nil || again != answer {
			w.t.Fatalf("asked again, a client is told %q and %v, and was told %q", again, err, answer)
		}
	}
	if n := number(w.t, home.Pool, "select count(*) from orders"); n != len(l.answers) {
		w.t.Errorf("asked again, there are %d orders instead of %d", n, len(l.answers))
	}
}

// expectNothing holds that a cluster has no row of the tenant's.
func (w *world) expectNothing(c fleet.Cluster) {
	w.t.Helper()
	for _, table := range []string{"orders", "customers", "bills", "idem.records", "idem.operations", "idem.steps", "idem.signals", "idem.inbox", "idem.outbox", "idem.delayed", "idem.dead_letters", "idem.published"} {
		if n := number(w.t, c.Pool, "select count(*) from "+table); n != 0 {
			w.t.Errorf("the old home has %d rows left in %s", n, table)
		}
	}
}

func (w *world) charges() int {
	w.t.Helper()
	response, err := http.Get(w.bankURL + "/charges")
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	var entries []bank.Entry
	if err := json.NewDecoder(response.Body).Decode(&entries); err != nil {
		w.t.Fatal(err)
	}
	return len(slices.DeleteFunc(entries, func(e bank.Entry) bool { return e.Declined }))
}

func number(t *testing.T, pool *pgxpool.Pool, query string, args ...any) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// eventually asks until the answer is yes.
var eventually = waiting.Until

func hash(s string) idem.Hash { return idem.HashBytes([]byte(s)) }

func (w *world) fill(c fleet.Cluster, keys int) {
	w.t.Helper()
	if err := fleet.Place(w.t.Context(), c, "other"); err != nil {
		w.t.Fatal(err)
	}
	for _, of := range []string{tenant, "other"} {
		if err := shop.Fill(w.t.Context(), c, of, keys); err != nil {
			w.t.Fatal(err)
		}
	}
}
