package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

// Add is one round trip for any number of messages, and Queue is none.
func TestAdd_CostsOneRoundTrip(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	proxy := pgtest.Proxy(t, o.dsn)
	behind := o.through(proxy, func(c *pgxpool.Config) { c.MaxConns = 1 })
	many := func() []outbox.Message {
		messages := make([]outbox.Message, 500)
		for i := range messages {
			messages[i] = message(fmt.Sprint(i), "many")
		}
		return messages
	}
	trips := func(f func(tx pgx.Tx, batch *pgx.Batch) error) (turns int) {
		t.Helper()
		for range 2 { // the first run prepares the statements
			proxy.ResetTally()
			err := pgx.BeginFunc(t.Context(), behind.pool, func(tx pgx.Tx) error {
				batch := &pgx.Batch{}
				batch.Queue(`select 1`)
				if err := f(tx, batch); err != nil {
					return err
				}
				return tx.SendBatch(t.Context(), batch).Close()
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return proxy.Tally().Turns
	}
	plain := trips(func(pgx.Tx, *pgx.Batch) error { return nil })
	add := trips(func(tx pgx.Tx, _ *pgx.Batch) error { return outbox.Add(context.Background(), tx, many()...) })
	queue := trips(func(_ pgx.Tx, batch *pgx.Batch) error { return outbox.Queue(batch, many()...) })
	if add != plain+1 || queue != plain {
		t.Errorf("Add costs %d round trips, and Queue %d", add-plain, queue-plain)
	}
	if n := o.waiting(); n != 2000 {
		t.Errorf("%d messages", n)
	}
}

// explain returns the plan of a statement of the relay, with its settings.
func (o *database) explain(options, sql string, args ...any) string {
	o.t.Helper()
	tx := o.begin()
	if _, err := tx.Exec(o.t.Context(), db.LimitRelaySQL); err != nil {
		o.t.Fatal(err)
	}
	rows, _ := tx.Query(o.t.Context(), "explain "+options+" "+sql, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		o.t.Fatal(err)
	}
	if err := tx.Rollback(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
	return strings.ReplaceAll(strings.Join(plan, "\n"), "rows=1.00 ", "rows=1 ") // as PostgreSQL 18 writes it
}

// The statistics are those of a table that was empty, or full.
func TestRelay_ReadsByIndexWithAnyStatistics(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.exec(`alter table idem.outbox set (autovacuum_enabled = off); alter table idem.delayed set (autovacuum_enabled = off)`, pgx.QueryExecModeSimpleProtocol)
	for _, prepare := range []string{
		`select`, `analyze idem.outbox`,
		`insert into idem.outbox (created_at, id, aggregatetype, aggregateid, type, held)
			select now(), gen_random_uuid(), 't', 'k' || i % 7, '', i % 3 = 0 from generate_series(1, 3000) i; analyze idem.outbox;
			insert into idem.delayed (not_before, created_at, id, aggregatetype, aggregateid, type)
			select now() + i * interval '1 second', now(), gen_random_uuid(), 't', '', '' from generate_series(-1500, 1500) i; analyze idem.delayed`,
	} {
		o.exec(prepare, pgx.QueryExecModeSimpleProtocol)
		for query, args := range map[string][]any{
			db.ReadMessagesSQL:    {2, 1, false, "{t%}", "{t\\\\_u}", "{busy}", false, "{5,100}", "{7,110}", 1000, 500, 1000},
			db.ReadHeldSQL:        {"{t,t}", "{k1,k2}", "{0,0}", "{9,9}", "{1,16}", 1000},
			db.DeletePublishedSQL: {"{1,2,3}"}, db.HoldMessagesSQL: {"{1,2,3}"}, db.BlameMessagesSQL: {"{1,2}", "{1,2}", "{0,1}", "{a,b}", "{a,b}"},
			db.NextDelayedSQL: {}, db.MoveDelayedSQL: {"-infinity", 1000, 1000},
		} {
			plan := o.explain("", query, args...)
			if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Bitmap") ||
				!strings.Contains(plan, "Index Cond: (") && !strings.Contains(plan, "delayed_pkey on delayed") {
				t.Errorf("after %s:\n%s\n%s", prepare, query, plan)
			}
		}
	}
}

// Of 20,000 held messages without a key, the statement reads only those that are due. Of 20,000
// delayed messages, the statements read the first and no other.
func TestRelay_ReadsOnlyWhatIsDue(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.exec(`alter table idem.outbox set (autovacuum_enabled = off); alter table idem.delayed set (autovacuum_enabled = off);
		insert into idem.outbox (created_at, id, aggregatetype, aggregateid, type, held, attempts)
			select now(), gen_random_uuid(), 't', '', '', true, 1 from generate_series(1, 20000);
		insert into idem.delayed (not_before, created_at, id, aggregatetype, aggregateid, type)
			select now() + interval '1 day' + i * interval '1 ms', now(), gen_random_uuid(), 't', '', '' from generate_series(1, 20000) i`,
		pgx.QueryExecModeSimpleProtocol)
	var positions, topics, keys, runs []string
	for i := range 500 {
		positions, topics, keys, runs = append(positions, fmt.Sprint(20*i+1)), append(topics, "t"), append(keys, `""`), append(runs, "1")
	}
	array := func(list []string) string { return "{" + strings.Join(list, ",") + "}" }
	plan := o.explain("(analyze, costs off, timing off)", db.ReadHeldSQL,
		array(topics), array(keys), array(positions), array(positions), array(runs), 1<<20)
	if strings.Contains(plan, "Rows Removed by Filter") || !strings.Contains(plan, "rows=1 loops=500") || !strings.Contains(plan, "seq >= ") {
		t.Error(plan)
	}
	for query, args := range map[string][]any{db.NextDelayedSQL: {}, db.MoveDelayedSQL: {"-infinity", 1000, 1 << 20}} {
		plan := o.explain("(analyze, costs off, timing off, summary off)", query, args...)
		for line := range strings.Lines(plan) {
			reads := strings.Contains(line, "on delayed") && !strings.Contains(line, "rows=0") && !strings.Contains(line, "rows=1 ") &&
				!strings.Contains(line, "never executed")
			if reads || strings.Contains(line, "Rows Removed") || strings.Contains(line, "idem.delayed") || strings.Contains(line, "Seq Scan") {
				t.Errorf("%s\n%s", line, plan)
			}
		}
	}
}
