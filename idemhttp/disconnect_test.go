package idemhttp_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// gate blocks every COMMIT of an order.
type gate struct {
	s    *shop
	conn *pgx.Conn
}

func (s *shop) closeCommits() *gate {
	s.t.Helper()
	conn, err := pgx.ConnectConfig(context.Background(), s.pool.Config().ConnConfig)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	g := &gate{s, conn}
	g.exec(`create function pass() returns trigger language plpgsql as $$
		begin perform pg_advisory_xact_lock_shared(4711); return null; end $$`)
	g.exec(`create constraint trigger pass after insert on orders deferrable initially deferred for each row execute function pass()`)
	g.exec(`select pg_advisory_lock(4711)`)
	return g
}

func (g *gate) exec(sql string) {
	g.s.t.Helper()
	if _, err := g.conn.Exec(context.Background(), sql); err != nil {
		g.s.t.Fatal(err)
	}
}

// waitForCommit waits until a COMMIT is blocked.
func (g *gate) waitForCommit() {
	g.s.t.Helper()
	for ; g.s.t.Context().Err() == nil; time.Sleep(time.Millisecond) {
		if g.s.count(`select count(*) from pg_locks where locktype = 'advisory' and objid = 4711 and not granted
			and database = (select oid from pg_database where datname = current_database())`) > 0 {
			return
		}
	}
}

func (g *gate) open() { g.exec(`select pg_advisory_unlock(4711)`) }

// openSoonAfter opens the gate. It reports whether this was well within the five seconds for which
// a COMMIT outlives its request. On a slower machine the rest of the test is skipped.
func (g *gate) openSoonAfter(left time.Time) bool {
	g.s.t.Helper()
	g.open()
	took := time.Since(left)
	if took > 2*time.Second {
		g.s.t.Logf("left out: this machine took %v between two steps", took)
	}
	return took <= 2*time.Second
}

// watched serves h, and returns a channel that is closed when the server notices that the client of
// the first request has gone.
func watched(t *testing.T, h http.Handler) (*httptest.Server, chan struct{}) {
	gone := make(chan struct{})
	first := make(chan struct{}, 1)
	first <- struct{}{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-first:
			context.AfterFunc(r.Context(), func() { close(gone) })
		default:
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server, gone
}

// sendAndHangUp sends the order over a connection that hangUp closes. It does not wait for the
// answer.
func sendAndHangUp(t *testing.T, url string) (hangUp func()) {
	ctx, cancel := context.WithCancel(t.Context())
	r := request(withContext(ctx))
	sent, err := http.NewRequestWithContext(ctx, r.Method, url, r.Body)
	if err != nil {
		t.Fatal(err)
	}
	sent.Header = r.Header
	done := make(chan struct{})
	go func() {
		defer close(done)
		if response, err := http.DefaultTransport.RoundTrip(sent); err == nil {
			response.Body.Close()
			t.Error("there was an answer")
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func TestDisconnect_DuringCommitDoesNotRollBack(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	gate := s.closeCommits()
	server, gone := watched(t, s.middleware().Wrap(http.HandlerFunc(s.order)))
	hangUp := sendAndHangUp(t, server.URL)
	gate.waitForCommit()
	left := time.Now()
	hangUp()
	<-gone
	if !gate.openSoonAfter(left) {
		return
	}
	again := over(t, server.Client().Transport, server.URL, "k")
	if again.Status != http.StatusCreated || again.Header.Get("Idempotency-Replayed") != "true" || s.runs.Load() != 1 {
		t.Errorf("the handler ran %d times, then %v", s.runs.Load(), again)
	}
	s.want(1, 1)
}

func TestDisconnect_BeforeCommitRollsBack(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	inside, returned := make(chan struct{}), make(chan struct{})
	var gone chan struct{}
	h := s.middleware().Wrap(s.answering(func(w http.ResponseWriter, _ *http.Request) {
		close(inside)
		<-gone
		w.WriteHeader(http.StatusCreated)
	}))
	server, left := watched(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(returned)
		h.ServeHTTP(w, r)
	}))
	gone = left
	hangUp := sendAndHangUp(t, server.URL)
	<-inside
	hangUp()
	<-returned
	s.want(0, 0)
	wantStatus(t, ask(s.middleware().Wrap(http.HandlerFunc(s.order)), withTarget("/")), http.StatusCreated)
	s.want(1, 1)
}

// A database that accepts connections and never responds blocks a request until its deadline. After
// a failover, connections of the pool may lead to a read-only server.
func TestUnavailableDatabase_IsA503(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, test := range map[string]struct {
		change func(*pgx.ConnConfig)
		limit  time.Duration // of a request
		logged string
	}{
		"no server": {func(c *pgx.ConnConfig) { c.Port = 1 }, time.Hour, ""},
		"silent": {func(c *pgx.ConnConfig) {
			c.Host, c.Port, c.ConnectTimeout = "127.0.0.1", uint16(silent.Addr().(*net.TCPAddr).Port), 0
		}, 50 * time.Millisecond, ""},
		"read only": {func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_read_only"] = "on" }, time.Hour, "25006"},
	} {
		inShop(t, name, func(t *testing.T, s *shop) {
			config := s.pool.Config()
			config.ConnConfig.Fallbacks = nil
			test.change(config.ConnConfig)
			pool, err := pgxNew(t, config)
			if err != nil {
				t.Fatal(err)
			}
			away := &shop{t: t, pool: pool}
			h := away.middleware(optional).Handle(func(tx pgx.Tx, _ http.ResponseWriter, _ *http.Request) error {
				_, err := away.tryPlace(tx)
				return err
			})
			for _, key := range []edit{withKey("k"), withoutKey()} {
				ctx, cancel := context.WithTimeout(t.Context(), test.limit)
				defer cancel()
				answer := ask(h, key, withContext(ctx))
				problem := wantProblem(t, answer, http.StatusServiceUnavailable, "unavailable")
				if problem["retryable"] != true || answer.Header.Get("Retry-After") != "1" {
					t.Errorf("%v, Retry-After %q", problem, answer.Header.Get("Retry-After"))
				}
			}
			if !strings.Contains(away.logs.String(), test.logged) {
				t.Errorf("the log says %s", &away.logs)
			}
			s.want(0, 0)
		})
	}
}
