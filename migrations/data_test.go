package migrations_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/pgtest"
)

// Each table has a row from the version on that creates it: later versions keep what is in it.
func TestUp_KeepsTheDataOfEachVersion(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.EmptyDSN(t))
	provider := newProvider(t, db)
	rows := map[string]string{} // by table, as they were written
	for _, source := range provider.ListSources() {
		if _, err := provider.UpByOne(t.Context()); err != nil {
			t.Fatalf("%s, with data in every table: %v", source.Path, err)
		}
		for table, insert := range inserts(t, db) {
			if _, ok := rows[table]; ok {
				continue
			}
			var row string
			if err := db.QueryRow(insert).Scan(&row); err != nil {
				t.Fatalf("%s: %v", insert, err)
			}
			rows[table] = row
		}
	}
	if len(rows) < 10 {
		t.Errorf("%d tables", len(rows))
	}
	for table, row := range rows {
		var kept bool
		if err := db.QueryRow(fmt.Sprintf(`select count(*) = 1 and bool_and(to_jsonb(r) @> $1) from idem.%s r`, table), row).Scan(&kept); err != nil || !kept {
			t.Errorf("%s has no longer just %s, %v", table, row, err)
		}
	}
}

// inserts returns a statement for each table that gives it a row, and returns that.
func inserts(t *testing.T, db *sql.DB) map[string]string {
	t.Helper()
	rows, err := db.Query(`
		select c.relname, string_agg(quote_ident(a.attname), ', ' order by a.attnum), string_agg(
			case format_type(a.atttypid, null)
				when 'uuid' then 'gen_random_uuid()' when 'timestamp with time zone' then 'now()' when 'jsonb' then '''{}''' when 'boolean' then 'true'
				when 'bytea' then '''\x01''' when 'interval' then '''1 h''' when 'text' then '''some''' when 'text[]' then '''{some}''' else '1' end, ', ' order by a.attnum)
		from pg_class c join pg_attribute a on a.attrelid = c.oid
		where c.relnamespace = 'idem'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
			and a.attnum > 0 and not a.attisdropped and a.attnotnull and not a.atthasdef and a.attidentity = ''
		group by c.relname`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := map[string]string{}
	for rows.Next() {
		var table, columns, values string
		if err := rows.Scan(&table, &columns, &values); err != nil {
			t.Fatal(err)
		}
		all[table] = strings.Join([]string{"insert into idem.", table, " as r (", columns, ") values (", values, ") returning to_jsonb(r)"}, "")
	}
	return all
}
