package outbox_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/outbox"
)

// trips returns the round trips of f on a connection that has prepared its statements.
func trips(t *testing.T, proxy *pgproxy.Proxy, f func()) int {
	t.Helper()
	f()
	proxy.ResetTally()
	f()
	return proxy.Tally().Turns
}

// Queue costs none.
func TestAdd_CostsOneRoundTrip(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.exec(`create table orders (id bigint generated always as identity primary key, what text not null)`)
	proxy := pgtest.Proxy(t, o.dsn)
	behind := o.through(proxy, func(c *pgxpool.Config) { c.MaxConns = 1 })
	many := make([]outbox.Message, 500)
	for i := range many {
		many[i] = message(fmt.Sprint(i), "many")
	}
	business := func(batch func(*pgx.Batch) error, add func(pgx.Tx) error) func() {
		return func() {
			err := pgx.BeginFunc(t.Context(), behind.pool, func(tx pgx.Tx) error {
				b := &pgx.Batch{}
				b.Queue(`insert into orders (what) values ($1)`, "an order")
				if err := batch(b); err != nil {
					return err
				}
				if err := tx.SendBatch(t.Context(), b).Close(); err != nil {
					return err
				}
				return add(tx)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	alone := func(*pgx.Batch) error { return nil }
	nothing := func(pgx.Tx) error { return nil }
	plain := trips(t, proxy, business(alone, nothing))
	for i := range many {
		many[i].ID = ""
	}
	add := func(tx pgx.Tx) error { return outbox.Add(context.Background(), tx, ids(many)...) }
	if n := trips(t, proxy, business(alone, add)); n != plain+1 {
		t.Errorf("Add costs %d round trips", n-plain)
	}
	if n := trips(t, proxy, business(func(b *pgx.Batch) error { return outbox.Queue(b, ids(many)...) }, nothing)); n != plain {
		t.Errorf("Queue costs %d round trips", n-plain)
	}
	if n := o.count(`select count(*) from idem.outbox`); n != 2000 {
		t.Errorf("%d messages", n)
	}
}

// ids returns a copy of messages without IDs.
func ids(messages []outbox.Message) []outbox.Message {
	fresh := append([]outbox.Message{}, messages...)
	for i := range fresh {
		fresh[i].ID = ""
	}
	return fresh
}

// wal returns the bytes of WAL that a transaction writes. It is the minimum of several runs, so it
// includes no page split.
func (o *database) wal(begin func(n int) func(tx pgx.Tx) error) int {
	o.t.Helper()
	least := math.MaxInt
	for n := range 40 {
		before := o.text(`select pg_current_wal_insert_lsn()::text`)
		if err := pgx.BeginFunc(context.Background(), o.pool, begin(n)); err != nil {
			o.t.Fatal(err)
		}
		least = min(least, o.count(`select (pg_current_wal_insert_lsn() - $1::text::pg_lsn)::int`, before))
	}
	return least
}

// The test compares it with an outbox table as the documentation of Debezium describes it.
func TestAdd_WritesLittleWAL(t *testing.T) {
	t.Parallel()
	o := &database{t: t, dsn: pgtest.Server(t, "full_page_writes=off", "autovacuum=off").DSN()} // nothing else writes to this server
	if err := schema.UpAt(t.Context(), o.dsn); err != nil {
		t.Fatal(err)
	}
	o.pool = pgtest.Open(t, o.dsn)
	o.exec(`create table by_hand (id uuid primary key, aggregatetype varchar(255) not null, aggregateid varchar(255) not null, type varchar(255) not null, payload bytea)`)
	o.exec(`create table by_hand_in_order (seq bigint generated always as identity primary key, id uuid not null, aggregatetype varchar(255) not null, aggregateid varchar(255) not null, type varchar(255) not null, payload bytea)`)
	payload := make([]byte, 200)
	m := func(n int) outbox.Message {
		return outbox.Message{ID: outbox.NewID(), Topic: "orders", Key: fmt.Sprintf("order %4d", n), Type: "OrderPlaced", Payload: payload}
	}
	hand := func(table string) int {
		return o.wal(func(n int) func(tx pgx.Tx) error {
			return func(tx pgx.Tx) error {
				m := m(n)
				_, err := tx.Exec(context.Background(), `insert into `+table+` (id, aggregatetype, aggregateid, type, payload) values ($1, $2, $3, $4, $5)`,
					m.ID, m.Topic, m.Key, m.Type, m.Payload)
				return err
			}
		})
	}
	byHand, inOrder := hand("by_hand"), hand("by_hand_in_order")
	added := o.wal(func(n int) func(tx pgx.Tx) error {
		return func(tx pgx.Tx) error { return outbox.Add(context.Background(), tx, m(n)) }
	})
	t.Logf("a transaction with a message writes %d bytes of WAL; with a row by hand %d, with one that has an order %d", added, byHand, inOrder)
	if float64(added) > 1.15*float64(byHand) {
		t.Errorf("a transaction with a message writes %d bytes of WAL, with a row by hand %d", added, byHand)
	}
}

// The transaction takes no lock and no subtransaction per message.
func TestAdd_TwentyThousandMessages(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	o.relay(b, swift())
	tx := o.begin()
	locks := func() int { return o.count(`select count(*) from pg_locks where pid = $1`, tx.Conn().PgConn().PID()) }
	o.in(tx, message("a", "first"))
	before := locks()
	messages := make([]outbox.Message, 19_000)
	for i := range messages {
		messages[i] = message(fmt.Sprint(i%100), fmt.Sprint(i))
	}
	o.in(tx, messages...)
	for i := range 999 {
		o.in(tx, message("b", fmt.Sprint(i)))
	}
	if after := locks(); after > before {
		t.Errorf("%d locks more are held", after-before)
	}
	var writers int
	if err := tx.QueryRow(t.Context(), `select count(distinct xmin::text) from idem.outbox`).Scan(&writers); err != nil || writers != 1 {
		t.Errorf("%d transactions, one within the other, have written them; %v", writers, err)
	}
	o.add(message("c", "beside it"))
	eventually(t, "another message to leave meanwhile", func() bool { return b.number() == 1 })
	o.commit(tx)
	eventually(t, "all of them", func() bool { return b.number() == 20_001 })
	next := map[string]int{}
	for _, m := range b.all()[2:19_002] {
		var i int
		if _, err := fmt.Sscan(m.Type, &i); err != nil || i < next[m.Key] {
			t.Fatalf("%s came after %d of its key, %v", m.Type, next[m.Key], err)
		}
		next[m.Key] = i
	}
}

func TestRelay_PollsInOneRoundTrip(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.exec(`alter table idem.outbox set (autovacuum_enabled = off)`)
	proxy := pgtest.Proxy(t, o.dsn)
	var looks atomic.Int64
	reads := pgproxy.Contains("ReadMessages")
	defer proxy.Observe(func(e pgproxy.Event) {
		if e.Stage == pgproxy.Answered && reads(e.Statement) {
			looks.Add(1)
		}
	})()
	b := &broker{}
	o.through(proxy).relay(b, swift())
	o.fill(3000)
	o.empty()
	from := looks.Load()
	eventually(t, "a few looks", func() bool { return looks.Load() > from+5 })
	begun := looks.Load()
	proxy.ResetTally()
	eventually(t, "ten looks", func() bool { return looks.Load() >= begun+10 })
	turns, made := int64(proxy.Tally().Turns), looks.Load()-begun
	if turns > made+2 {
		t.Errorf("%d round trips for %d looks", turns, made)
	}
	if n := b.number(); n != 3000 {
		t.Errorf("%d messages were published", n)
	}
}

// The statistics are those of a table that was empty, or full.
func TestRelay_ReadsByIndexWithAnyStatistics(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]string{
		"never analyzed": `select`, "analyzed when empty": `analyze idem.outbox`,
		"analyzed when full": `insert into idem.outbox (created_at, id, aggregatetype, aggregateid, type, held)
			select now(), gen_random_uuid(), 't', 'k' || i % 7, '', i % 3 = 0 from generate_series(1, 3000) i; analyze idem.outbox;
			insert into idem.delayed (not_before, created_at, id, aggregatetype, aggregateid, type)
			select now() + i * interval '1 second', now(), gen_random_uuid(), 't', '', '' from generate_series(-1500, 1500) i; analyze idem.delayed`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newDatabase(t)
			o.exec(`alter table idem.outbox set (autovacuum_enabled = off)`)
			o.exec(prepare, pgx.QueryExecModeSimpleProtocol)
			tx := o.begin()
			if _, err := tx.Exec(t.Context(), db.LimitRelaySQL); err != nil {
				t.Fatal(err)
			}
			for query, args := range map[string][]any{
				db.ReadMessagesSQL:    {2, 1, false, "{t%}", "{t\\\\_u}", "{busy}", false, "{5,100}", "{7,110}", 1000, 500, 1000},
				db.ReadHeldSQL:        {"{t,t}", "{k1,k2}", "{0,0}", "{9,9}", "{1,16}", 1000},
				db.DeletePublishedSQL: {"{1,2,3}"}, db.HoldMessagesSQL: {"{1,2,3}"}, db.BlameMessagesSQL: {"{1,2}", "{1,2}", "{0,1}", "{a,b}", "{a,b}"},
				db.NextDelayedSQL: {}, db.MoveDelayedSQL: {"-infinity", 1000, 1000},
			} {
				rows, _ := tx.Query(t.Context(), "explain "+query, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
				plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if text := strings.Join(plan, "\n"); err != nil || strings.Contains(text, "Seq Scan") || strings.Contains(text, "Bitmap") || !strings.Contains(text, "Index Cond: (") && !strings.Contains(text, "delayed_pkey on delayed") {
					t.Errorf("%v:\n%s\n%s", err, query, text)
				}
			}
		})
	}
}

// Of 20,000 held messages without a key, the statement reads only those that are due.
func TestRelay_ReadsOnlyRetriesThatAreDue(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.exec(`alter table idem.outbox set (autovacuum_enabled = off)`)
	o.exec(`insert into idem.outbox (created_at, id, aggregatetype, aggregateid, type, held, attempts) select now(), gen_random_uuid(), 't', '', '', true, 1 from generate_series(1, 20000)`)
	tx := o.begin()
	if _, err := tx.Exec(t.Context(), db.LimitRelaySQL); err != nil {
		t.Fatal(err)
	}
	var places, topics, keys, runs []string
	for i := range 500 {
		places, topics, keys, runs = append(places, fmt.Sprint(20*i+1)), append(topics, "t"), append(keys, `""`), append(runs, "1")
	}
	array := func(list []string) string { return "{" + strings.Join(list, ",") + "}" }
	rows, _ := tx.Query(t.Context(), "explain (analyze, costs off, timing off) "+db.ReadHeldSQL, pgx.QueryExecModeSimpleProtocol,
		array(topics), array(keys), array(places), array(places), array(runs), 1<<20)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	text := strings.ReplaceAll(strings.Join(plan, "\n"), "rows=1.00 ", "rows=1 ") // as PostgreSQL 18 writes it
	if err != nil || strings.Contains(text, "Rows Removed by Filter") || !strings.Contains(text, "rows=1 loops=500") || !strings.Contains(text, "seq >= ") {
		t.Errorf("%v\n%s", err, text)
	}
}

// A read of retries is bounded, and other messages are published beside them.
func TestRelay_ThousandsOfRetriesBlockNoOther(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	var most atomic.Int64
	b := &broker{refuse: refusing("refused"), before: func(messages []outbox.Message) error {
		most.Store(max(most.Load(), int64(len(messages))))
		return nil
	}}
	o.exec(`insert into idem.outbox (created_at, id, aggregatetype, aggregateid, type, held, attempts, next_at)
		select now(), gen_random_uuid(), 't', '', 'refused', true, 1, now() from generate_series(1, 20000)`)
	config := swift()
	config.MaxAttempts, config.MaxPause, config.BatchSize = 1_000_000, time.Hour, 500
	o.relay(b, config)
	for i := range 20 {
		o.add(message("free", fmt.Sprint(i)))
		eventually(t, "a message beside them", func() bool { return b.number() > i })
	}
	if n := most.Load(); n > 500 {
		t.Errorf("%d messages were given to the Publisher at once", n)
	}
}

// The statements read the first delayed message and no other.
func TestDelayed_ReadsNoMessageBeforeItIsDue(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.exec(`alter table idem.delayed set (autovacuum_enabled = off)`)
	o.delay(20_000)
	tx := o.begin()
	if _, err := tx.Exec(t.Context(), db.LimitRelaySQL); err != nil {
		t.Fatal(err)
	}
	for query, args := range map[string][]any{db.NextDelayedSQL: {}, db.MoveDelayedSQL: {"-infinity", 1000, 1 << 20}} {
		rows, _ := tx.Query(t.Context(), "explain (analyze, costs off, timing off, summary off) "+query, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range plan {
			if strings.Contains(line, "Rows Removed") || strings.Contains(line, "idem.delayed") || strings.Contains(line, "Seq Scan") ||
				strings.Contains(line, "on delayed") && !strings.Contains(line, "rows=0") && !strings.Contains(line, "rows=1 ") && !strings.Contains(line, "rows=1.00 ") && !strings.Contains(line, "never executed") {
				t.Errorf("%s\n%s", line, strings.Join(plan, "\n"))
			}
		}
	}
}
