package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemotel"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/purge"
)

// unruly is a service that misbehaves, or is made to.
type unruly struct {
	*shop
	proxy *pgproxy.Proxy // between the service and its database
	admin *pgxpool.Pool  // past the proxy
	url   string
	n     int

	metrics *metrics
}

// misbehaviour is what goes on until ctx ends, with the alerts that it has to raise.
type misbehaviour struct {
	goOn   func(ctx context.Context, s *unruly)
	alerts []string
}

var misbehaviours = map[string]misbehaviour{
	"quiet":              {quietly, nil},
	"hot-key":            {hotKey, []string{"IdemHotKey"}},
	"mismatch-storm":     {mismatches, []string{"IdemMismatches"}},
	"killed-holders":     {killHolders, []string{"IdemConnectionsLost"}},
	"stuck-holder":       {stuckHolder, []string{"IdemInProgress", "IdemTransactionOld"}},
	"lost-commits":       {lostCommits, []string{"IdemCommitUnresolved"}},
	"key-dropped":        {dropKey, []string{"IdemUnreadable"}},
	"full-pool":          {fullPool, []string{"IdemPoolFull", "IdemPoolTimeouts", "IdemFiguresMissing"}},
	"purge-stands-still": {purgeStandsStill, []string{"IdemPurgeStandsStill"}},
	"stopped-operations": {stoppedOperations, []string{"IdemOperationParked", "IdemOperationsLate"}},
	"stopped-messages":   {stoppedMessages, []string{"IdemOutboxOld", "IdemDeadLetters", "IdemInboxFailing"}},
	"absent-broker":      {absentBroker, []string{"IdemOutboxAway"}},
	"delivered-often":    {deliveredOften, []string{"IdemDuplicates"}},
	"no-vacuum":          {noVacuum, []string{"IdemDeadRows"}},
}

// Nothing here depends on how fast the machine is: shares do not, and what takes time is waited for.
func TestEachAlertFiresForWhatItIsForAndNoneForAQuietService(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	optional.Program(t, "prometheus")
	services, targets := map[string]*unruly{}, map[string]string{}
	for job := range misbehaviours {
		every := 5 * time.Second // on a slow machine, what was read 20 seconds ago is still shown
		if job == "quiet" {
			every = time.Minute // figures that are read late are none that are missing
		}
		services[job] = newUnruly(t, every)
		targets[job] = services[job].url
	}
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	for job, m := range misbehaviours {
		group.Go(func() { m.goOn(ctx, services[job]) })
	}
	prometheus := startPrometheus(t, impatient(t), targets)
	for job, m := range misbehaviours {
		for _, alert := range m.alerts {
			prometheus.await(t, job+" to raise "+alert, func() bool { return prometheus.firing(t, job)[alert] })
			t.Logf("%s raises %s", job, alert)
		}
	}
	prometheus.await(t, "a while of quiet", func() bool {
		return len(prometheus.query(t, `count_over_time(up{job="quiet"}[10m]) > 8`)) == 1
	})
	if loud := prometheus.query(t, `count_over_time(ALERTS{job="quiet"}[10m])`); len(loud) > 0 {
		t.Errorf("the quiet service has raised %v", loud)
	}
	named := regexp.MustCompile(`(?m)- alert: (\w+)`).FindAllStringSubmatch(rules(t), -1)
	for _, alert := range named {
		if !slices.ContainsFunc(slices.Collect(maps.Values(misbehaviours)), func(m misbehaviour) bool { return slices.Contains(m.alerts, alert[1]) }) {
			t.Errorf("nothing here raises %s", alert[1])
		}
	}
	prometheus.wantPanels(t)
}

func rules(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operate/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// impatient returns the rules with short times in the place of the long ones. What they compare shares with is as it was.
func impatient(t *testing.T) string {
	t.Helper()
	text := rules(t)
	for _, change := range []struct{ long, short string }{
		{`\[5m\]`, "[20s]"}, {`for: \d+m`, "for: 1s"}, {`(idem_transactions_age_seconds\)) > 60`, "$1 > 10"},
	} {
		long := regexp.MustCompile(change.long)
		if !long.MatchString(text) {
			t.Fatalf("the rules have no %s", change.long)
		}
		text = long.ReplaceAllString(text, change.short)
	}
	return text
}

// newUnruly returns a service that shows what is in its database, and reads it anew after some time.
func newUnruly(t *testing.T, every time.Duration) *unruly {
	t.Helper()
	dsn := pgtest.DSN(t)
	s := &unruly{admin: pgtest.Open(t, dsn), proxy: pgtest.Proxy(t, dsn)}
	if err := migrate(t.Context(), s.admin); err != nil {
		t.Fatal(err)
	}
	pool := pgtest.Open(t, s.proxy.DSN(), func(c *pgxpool.Config) { c.MaxConns = 10 })
	metrics, err := newMetrics(pool, idemotel.WithEvery(every))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { metrics.stop() })
	ctx, stop := context.WithCancel(context.Background())
	var purging sync.WaitGroup
	purging.Go(func() { purge.Run(ctx, pool, purge.Options{}) })
	relay := outbox.NewRelay(s.admin, outbox.PublisherFunc(func(context.Context, []outbox.Message) error { return nil }), outbox.RelayConfig{Observer: metrics.observer})
	purging.Go(func() { relay.Run(ctx) })
	t.Cleanup(func() { stop(); purging.Wait() })
	credentials := demoCredentials()
	service, err := newService(pool, credentials, newPayments(openBank(t).url), webhookSecret, metrics)
	if err != nil {
		t.Fatal(err)
	}
	s.metrics = metrics
	s.shop = &shop{t: t, pool: pool, handler: withPage(pool, credentials, service)}
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	s.url = server.URL
	s.exec(`UPDATE stock SET quantity = 1000000000`)
	s.getFigures()
	return s
}

func (s *unruly) newKey() string {
	s.n++
	return fmt.Sprintf("key-number-%08d", s.n)
}

// place sends an order, and does not care about the answer.
func (s *unruly) place(ctx context.Context, key string, amount int, edits ...edit) {
	body := fmt.Sprintf(`{"sku":"teapot","quantity":1,"amount_cents":%d,"currency":"EUR"}`, amount)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/orders", strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return
	}
	r.Header = http.Header{"Authorization": {"Bearer acme-key"}, "Content-Type": {"application/json"}, "Idempotency-Key": {key}}
	for _, edit := range edits {
		edit(r)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
}

// pause returns false once ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// calmly is the traffic of any service: orders, one in five asked for twice.
func (s *unruly) calmly(ctx context.Context) {
	key := s.newKey()
	s.place(ctx, key, 4900)
	if s.n%5 == 0 {
		s.place(ctx, key, 4900)
	}
}

func quietly(ctx context.Context, s *unruly) {
	for pause(ctx, 100*time.Millisecond) {
		s.calmly(ctx)
	}
}

// hotKey asks for each order eight times at once, while it takes its time.
func hotKey(ctx context.Context, s *unruly) {
	for pause(ctx, time.Millisecond) {
		key := s.newKey()
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() { s.place(ctx, key, 4900, withMishap("slow=300ms")) })
		}
		group.Wait()
	}
}

// mismatches asks for another amount each time.
func mismatches(ctx context.Context, s *unruly) {
	for i := 1; pause(ctx, 50*time.Millisecond); i++ {
		s.calmly(ctx)
		s.place(ctx, "always-the-same-key", i)
	}
}

// killHolders ends the sessions of orders that stand still inside their transaction.
func killHolders(ctx context.Context, s *unruly) {
	for pause(ctx, 200*time.Millisecond) {
		s.calmly(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.place(ctx, s.newKey(), 4900, withMishap("slow=5s"))
		}()
		for over := false; !over && pause(ctx, 10*time.Millisecond); {
			tag, err := s.admin.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`)
			select {
			case <-done: // where all are busy, it may have come to no standstill
				over = true
			default:
				over = err == nil && tag.RowsAffected() > 0
			}
		}
		<-done
	}
}

// stuckHolder is another process that does not let go of a key, and duplicates that wait for it.
func stuckHolder(ctx context.Context, s *unruly) {
	const key = "held-for-a-long-time"
	holding := make(chan struct{})
	go idem.Do(context.WithoutCancel(ctx), s.admin, scopeOf("acme"), key, idem.HashBytes(), func(pgx.Tx) (idem.Response, error) {
		close(holding)
		<-ctx.Done()
		return idem.Response{}, ctx.Err()
	})
	<-holding
	var group sync.WaitGroup
	defer group.Wait()
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				s.place(ctx, key, 4900)
			}
		})
	}
	<-ctx.Done()
}

// lostCommits takes the answer to a COMMIT away, and the database with it for longer than a call asks for the outcome of it.
func lostCommits(ctx context.Context, s *unruly) {
	for pause(ctx, 20*time.Millisecond) {
		s.calmly(ctx)
		trap := s.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.place(ctx, s.newKey(), 4900)
		}()
		select {
		case <-trap.Fired():
			s.proxy.Refuse(pgproxy.Reset)
			s.proxy.Cut(pgproxy.Reset)
		case <-done:
		}
		<-done
		s.proxy.Admit()
		s.pool.Reset()
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); { // so that a scrape comes in between
			if s.calmly(ctx); !pause(ctx, 20*time.Millisecond) {
				return
			}
		}
	}
}

// dropKey has records that were sealed with a key that the service does not have.
func dropKey(ctx context.Context, s *unruly) {
	const key = "sealed-long-ago"
	s.place(ctx, key, 4900)
	s.do(ctx, `UPDATE idem.records SET sealed_by = 'last-year'`)
	for pause(ctx, 100*time.Millisecond) {
		s.calmly(ctx)
		s.place(ctx, key, 4900)
	}
}

// fullPool holds all connections of the service. Its callers do not wait for long.
func fullPool(ctx context.Context, s *unruly) {
	for range s.pool.Config().MaxConns {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return
		}
		defer conn.Release()
	}
	for pause(ctx, time.Millisecond) {
		bounded, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		s.place(bounded, s.newKey(), 4900)
		cancel()
	}
}

// do runs statements on the database, past the service.
func (s *unruly) do(ctx context.Context, statements ...string) {
	for _, sql := range statements {
		if _, err := s.admin.Exec(ctx, sql); err != nil && ctx.Err() == nil {
			s.t.Errorf("%v: %s", err, sql)
		}
	}
}

// stoppedOperations leaves an operation that is parked, and one that is due and that no program knows.
func stoppedOperations(ctx context.Context, s *unruly) {
	s.do(ctx,
		`INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, state, undoing, step, seq, since, wake_at, tries, attempts, reason)
		 SELECT gen_random_uuid(), 's', state, '', 'forgotten', 1, now(), 1, state, false, 'charge', 1, now(), now() - interval '1 hour', 0, 0, 'it is not known'
		 FROM unnest(ARRAY['parked', 'running']) AS state`)
	quietly(ctx, s)
}

// stoppedMessages leaves one that cannot be published, one that is dead, and one that a consumer tries in vain.
func stoppedMessages(ctx context.Context, s *unruly) {
	s.do(ctx,
		`INSERT INTO idem.outbox (created_at, id, held, attempts, next_at, aggregatetype, aggregateid, type, class, reason)
		 VALUES (now() - interval '1 hour', gen_random_uuid(), true, 3, now() + interval '1 hour', 'refused', 'k', '', 'c', 'r')`,
		`INSERT INTO idem.dead_letters (side, consumer, source, id, key, type, class, reason, attempts, created_at, died_at)
		 VALUES ('inbox', 'billing', 's', 'dead', '', '', 'c', 'r', 10, now(), now())`,
		`INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at, attempts, retry_at)
		 VALUES ('billing', 's', 'failing', '', 'failing', now() - interval '1 hour', now() + interval '1 day', 3, now())`)
	quietly(ctx, s)
}

// absentBroker has messages that go to a broker which is away.
func absentBroker(ctx context.Context, s *unruly) {
	away := outbox.PublisherFunc(func(context.Context, []outbox.Message) error { return errors.New("away") })
	var relaying sync.WaitGroup
	defer relaying.Wait()
	relaying.Go(func() {
		for pause(ctx, 50*time.Millisecond) {
			err := outbox.NewRelay(s.admin, away, outbox.RelayConfig{
				Name: "absent", Topics: []string{"orders"}, MinPause: 10 * time.Millisecond, MaxPause: 50 * time.Millisecond, Observer: s.metrics.observer,
				Logger: slog.New(slog.DiscardHandler),
			}).Run(ctx)
			if err != nil {
				s.t.Logf("the relay of a broker that is away: %v", err)
			}
		}
	})
	for pause(ctx, time.Second) { // the service's own relay takes what is there before this one has said which topics it has
		s.do(ctx, `INSERT INTO idem.outbox (created_at, id, aggregatetype, aggregateid, type) VALUES (now(), gen_random_uuid(), 'orders', 'k', '')`)
	}
}

// deliveredOften gives every message to its consumer twice.
func deliveredOften(ctx context.Context, s *unruly) {
	for ; pause(ctx, 50*time.Millisecond); s.n++ {
		for range 2 {
			inbox.Handle(ctx, s.pool, "billing", inbox.Message{Source: "s", ID: fmt.Sprint(s.n)},
				func(pgx.Tx) error { return nil }, inbox.WithObserver(s.metrics.observer))
		}
	}
}

// purgeStandsStill has records that should be gone for long, and a purge that gets no further.
func purgeStandsStill(ctx context.Context, s *unruly) {
	s.do(ctx,
		`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		 SELECT 's', 'k' || i, '\x00', gen_random_uuid(), now() - interval '4 days', now() - interval '3 days' + i * interval '1 second',
		        'completed' FROM generate_series(1, 1000) i`,
		`ANALYZE idem.records`,
		`CREATE FUNCTION stand_still() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no further'; END $$`,
		// In one transaction, so that no sweep comes in between.
		`INSERT INTO idem.sweeps (name, last_started_at, last_finished_at)
		 VALUES ('records', now() - interval '30 hours', now() - interval '29 hours')
		 ON CONFLICT (name) DO UPDATE SET last_started_at = EXCLUDED.last_started_at, last_finished_at = EXCLUDED.last_finished_at;
		 CREATE TRIGGER stand_still BEFORE INSERT OR UPDATE ON idem.sweeps FOR EACH ROW EXECUTE FUNCTION stand_still()`)
	quietly(ctx, s)
}

// noVacuum leaves dead rows.
func noVacuum(ctx context.Context, s *unruly) {
	s.do(ctx,
		`ALTER TABLE idem.records SET (autovacuum_enabled = off)`,
		`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		 SELECT 's', 'k' || i, '\x00', gen_random_uuid(), now(), now() + interval '1 day', 'completed' FROM generate_series(1, 20000) i`,
		`DELETE FROM idem.records WHERE scope = 's'`)
	quietly(ctx, s)
}
