package calls

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/calls/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
)

// grown returns idem.Do on a table with that many records. In each turn several clients make first
// runs and then replays of random keys. Random keys are the worst case for an index, because each
// key is on another page.
func grown(records int, clients []int, turn time.Duration, seed uint64) runner.Contestant {
	return runner.Contestant{Name: grouped(records) + " records", Open: func(ctx context.Context, s *runner.Server) (runner.Seat, error) {
		b, err := open(ctx, s, contestant.Idem(), way{conns: poolSize})
		if err != nil {
			return nil, err
		}
		g := &growth{booth: b, clients: clients, turn: turn, firsts: cell{}.source(seed)}
		g.replays = g.firsts.fork()
		if err := g.prepare(ctx, records); err != nil {
			return nil, errors.Join(err, b.Close())
		}
		return g, nil
	}}
}

// growth runs the turns of a contestant that grown returned.
type growth struct {
	*booth
	clients         []int
	turn            time.Duration
	firsts, replays *source
}

func (g *growth) prepare(ctx context.Context, records int) (err error) {
	pattern := g.firsts.template
	pattern.Key = g.firsts.take(1)[0]
	if err := fill(ctx, g.booth, records, pattern); err != nil {
		return err
	}
	if g.replays.keys, err = sampleKeys(ctx, g.booth, 20_000); err != nil {
		return err
	}
	for _, keys := range []*source{g.firsts, g.replays} {
		if _, err := g.load(ctx, keys, 8, runner.Limit{Calls: 50}); err != nil {
			return err
		}
	}
	return nil
}

func (g *growth) Take(ctx context.Context) (result.Values, error) {
	values := result.Values{}
	for _, clients := range g.clients {
		for name, keys := range map[string]*source{"first": g.firsts, "replay": g.replays} {
			s, used, err := g.timed(ctx, keys, clients, runner.Limit{Time: g.turn})
			if err != nil {
				return nil, err
			}
			if keys == g.replays && s.replayed != len(s.Latencies) {
				return nil, fmt.Errorf("%d of %d calls were replays", s.replayed, len(s.Latencies))
			}
			figure := fmt.Sprintf("%s%d", name, clients)
			values[figure+"_us"] = s.P(0.5)
			if onServer, ok := used["server_us"]; ok && clients == 1 {
				values[figure+"_server_us"] = onServer
			}
		}
	}
	return values, nil
}

func (g *growth) Finish(ctx context.Context) (result.Values, error) {
	found, err := count(ctx, g.pool)
	if err != nil {
		return nil, err
	}
	return nil, found.check(g.firsts.made(), false, false)
}

// These queries read the structure of the table of idem, so that fill works with any version of the
// schema.
const (
	indexesOf = `select pg_get_indexdef(indexrelid) from pg_index i
		where indrelid = 'idem.records'::regclass and not exists (select from pg_constraint where conindid = i.indexrelid)`
	dropsOf = `select 'alter table idem.records drop constraint ' || quote_ident(conname) from pg_constraint
		where conrelid = 'idem.records'::regclass and contype = 'p'
		union all
		select 'drop index ' || indexrelid::regclass from pg_index i
		where indrelid = 'idem.records'::regclass and not exists (select from pg_constraint where conindid = i.indexrelid)`
	copiesOf = `select case attname
			when 'key' then 'gen_random_uuid()::text'
			when 'execution_id' then 'gen_random_uuid()'
			when 'expires_at' then 'expires_at + n * interval ''1 millisecond'''
			else quote_ident(attname)
		end from pg_attribute where attrelid = 'idem.records'::regclass and attnum > 0 and not attisdropped order by attnum`
)

// fill fills the table of idem with copies of a real record, each with its own key. It drops the
// indexes first and builds them at the end, so that they are compact.
func fill(ctx context.Context, b *booth, records int, call contestant.Call) error {
	if _, err := b.runner.Do(ctx, call); err != nil {
		return err
	}
	var parts [3][]string
	for i, query := range []string{indexesOf, dropsOf, copiesOf} {
		rows, err := b.pool.Query(ctx, query)
		if err != nil {
			return err
		}
		if parts[i], err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
	}
	indexes, drops, copies := parts[0], parts[1], parts[2]
	// With wal_level=minimal, a table that is truncated and filled in one transaction is not
	// logged.
	statements := append([]string{"create temp table pattern on commit drop as select * from idem.records", "truncate idem.records"}, drops...)
	statements = append(statements, fmt.Sprintf("insert into idem.records select %s from pattern, generate_series(1, %d) n", strings.Join(copies, ", "), records))
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	finish := append([]string{"alter table idem.records add primary key (scope, key)"}, indexes...)
	for _, sql := range append(finish, "vacuum (analyze) idem.records", "checkpoint") {
		if _, err := b.pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// sampleKeys returns about that many recorded keys from the whole table.
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

// grouped formats a number with commas.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
