package arena

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/contestant"
)

// What the table of idem consists of, as statements and expressions. Whatever the schema is, a loaded table is like one
// that calls have filled.
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

// Load fills the table of idem with copies of the record that a call leaves, each under a key of its own, with indexes as
// compact as a fresh one.
func (b *Booth) Load(ctx context.Context, records int, call contestant.Call) error {
	if _, err := b.Pool.Exec(ctx, "truncate idem.records"); err != nil {
		return err
	}
	if _, err := b.Runner.Do(ctx, call); err != nil {
		return err
	}
	var parts [3][]string
	for i, query := range []string{indexesOf, dropsOf, copiesOf} {
		var err error
		if parts[i], err = b.texts(ctx, query); err != nil {
			return err
		}
	}
	indexes, drops, copies := parts[0], parts[1], parts[2]
	fill := append([]string{"create temp table pattern on commit drop as select * from idem.records", "truncate idem.records"}, drops...)
	fill = append(fill, fmt.Sprintf("insert into idem.records select %s from pattern, generate_series(1, %d) n", strings.Join(copies, ", "), records))
	if err := b.inOne(ctx, fill); err != nil {
		return err
	}
	finish := append([]string{"alter table idem.records add primary key (scope, key)"}, indexes...)
	for _, sql := range append(finish, "vacuum (analyze) idem.records", "checkpoint") {
		if _, err := b.Pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// inOne executes statements in one transaction: where the server is set so, a table that is emptied and filled in one is
// not logged.
func (b *Booth) inOne(ctx context.Context, statements []string) error {
	return pgx.BeginFunc(ctx, b.Pool, func(tx pgx.Tx) error {
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
}

func (b *Booth) texts(ctx context.Context, sql string) ([]string, error) {
	rows, err := b.Pool.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Sample returns about so many of the recorded keys, from everywhere in the table.
func (b *Booth) Sample(ctx context.Context, keys int) ([]string, error) {
	rows, err := b.Pool.Query(ctx, `select key from idem.records
		tablesample bernoulli (least(100, 100.0 * $1 / (select reltuples from pg_class where oid = 'idem.records'::regclass)))
		where scope = $2`, keys, contestant.Scope)
	if err != nil {
		return nil, err
	}
	sample, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(sample) == 0 {
		err = errors.New("no record was found")
	}
	if err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	return sample, nil
}
