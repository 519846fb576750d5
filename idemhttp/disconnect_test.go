package idemhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/idemhttp"
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

func TestUnavailableDatabase_IsA503(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	config := s.pool.Config()
	config.ConnConfig.Port = 1
	config.ConnConfig.Fallbacks = nil
	away, err := pgxNew(t, config)
	if err != nil {
		t.Fatal(err)
	}
	m, err := idemhttp.New(away, idemhttp.Config{Scope: byTenant, Optional: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	h := m.Wrap(http.HandlerFunc(s.order))
	for _, edits := range [][]edit{nil, {withoutKey()}} {
		answer := ask(h, edits...)
		wantProblem(t, answer, http.StatusServiceUnavailable, "unavailable")
		if answer.Header.Get("Retry-After") != "1" {
			t.Error(answer.Header)
		}
	}
}
