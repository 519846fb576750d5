package calls

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/calls/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
)

// grown returns a contestant that calls idem.Do on a table with the given number of records. In
// each measurement, clients make calls with new keys, and calls that replay recorded keys. All keys
// are random, which is the worst case for an index, because each key is on another page.
func grown(records int, clients []int, turn time.Duration, seed uint64) runner.Contestant {
	name := grouped(records) + " records"
	return seated(name, contestant.Idem, way{conns: poolSize}, func(ctx context.Context, b *booth) (runner.Seat, error) {
		firsts := cell{}.source(seed)
		replays := firsts.fork()
		if err := fill(ctx, b, records, firsts.call(firsts.take(1)[0])); err != nil {
			return runner.Seat{}, err
		}
		var err error
		if replays.keys, err = sampleKeys(ctx, b, 20_000); err != nil {
			return runner.Seat{}, err
		}
		kinds := map[string]*source{"first": firsts, "replay": replays}
		for _, keys := range kinds {
			if _, err := b.load(ctx, keys, 8, runner.Limit{Calls: 50}); err != nil {
				return runner.Seat{}, err
			}
		}
		take := func(ctx context.Context) (result.Values, error) {
			values := result.Values{}
			for _, clients := range clients {
				for kind, keys := range kinds {
					s, used, err := b.timed(ctx, keys, clients, runner.Limit{Time: turn})
					if err != nil {
						return nil, err
					}
					figure := fmt.Sprintf("%s%d", kind, clients)
					values[figure+"_us"] = s.P(0.5)
					if onServer, ok := used["server_us"]; ok && clients == 1 {
						values[figure+"_server_us"] = onServer
					}
				}
			}
			return values, nil
		}
		return runner.Seat{Take: take, Finish: b.verify(firsts, false)}, nil
	})
}

// filling is SQL that fills the table of idem with copies of its only record, each with its own
// key. It reads the columns from the catalog and so works with any version of the schema. It drops
// the indexes first and builds them at the end, so that they are compact. With wal_level=minimal,
// Postgres writes no WAL for a table that is truncated and filled in one transaction.
const filling = `do $$
declare
	columns text; made text[]; sql text;
begin
	select string_agg(case attname
			when 'key' then 'gen_random_uuid()::text'
			when 'execution_id' then 'gen_random_uuid()'
			when 'expires_at' then 'expires_at + n * interval ''1 millisecond'' '
			else quote_ident(attname)
		end, ', ' order by attnum) into columns
		from pg_attribute where attrelid = 'idem.records'::regclass and attnum > 0 and not attisdropped;
	select array_agg(pg_get_indexdef(indexrelid)) into made
		from pg_index where indrelid = 'idem.records'::regclass and not indisprimary;
	create temp table pattern on commit drop as select * from idem.records;
	truncate idem.records;
	for sql in
		select 'alter table idem.records drop constraint ' || quote_ident(conname) from pg_constraint
			where conrelid = 'idem.records'::regclass and contype = 'p'
		union all
		select 'drop index ' || indexrelid::regclass from pg_index where indrelid = 'idem.records'::regclass and not indisprimary
	loop execute sql; end loop;
	execute 'insert into idem.records select ' || columns || ' from pattern, generate_series(1, %d) n';
	alter table idem.records add primary key (scope, key);
	foreach sql in array coalesce(made, '{}') loop execute sql; end loop;
end $$`

// fill executes call, and then fills the table of idem with copies of its record.
func fill(ctx context.Context, b *booth, records int, call contestant.Call) error {
	if _, err := b.do(ctx, call); err != nil {
		return err
	}
	for _, sql := range []string{fmt.Sprintf(filling, records), "vacuum (analyze) idem.records", "checkpoint"} {
		if _, err := b.pool.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// sampleKeys returns a random sample of the recorded keys. The size of the sample is about the
// number in keys.
func sampleKeys(ctx context.Context, b *booth, keys int) ([]string, error) {
	rows, err := b.pool.Query(ctx, `select key from idem.records
		tablesample bernoulli (least(100, 100.0 * $1 / (select reltuples from pg_class where oid = 'idem.records'::regclass)))
		where scope = $2`, keys, contestant.Scope)
	if err != nil {
		return nil, err
	}
	sample, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(sample) == 0 {
		err = errors.New("no record was found")
	}
	return sample, err
}

// grouped formats a number with commas between groups of three digits.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
