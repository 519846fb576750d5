package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// relation is a table of idem, or a partition of one, as the catalog describes it. Queries identify
// it by OID, because a role without USAGE on the schema cannot resolve its name.
type relation struct {
	OID         uint32
	Table       string // the table, or for a partition its table; without schema
	Name        string // its own name, as schema.table
	Kind        string // relkind
	Root        bool   // not a partition
	Leaf        bool   // stores rows itself
	Logged      bool
	RowSecurity bool // row-level security is on
	Applies     bool
	Identity    string // relreplident
	Autovacuum  bool   // not disabled for the table or for its TOAST table
	Used        bool   // has pages, or has had inserts according to the statistics
	Readable    bool   // the connected role has SELECT on it
}

// findRelations returns the relations of idem, in the order of tables. It reads only catalogs and
// takes no lock on the relations, so a session that has locked a table does not block it.
func findRelations(ctx context.Context, tx pgx.Tx, role string) ([]relation, error) {
	rows, _ := tx.Query(ctx, `
		WITH RECURSIVE roots AS (
			SELECT c.oid, c.relname::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = 'idem' AND c.relname = ANY ($1) AND c.relkind NOT IN ('i', 'I', 'S')
		), relations AS (
			SELECT oid, name, true AS root FROM roots
			UNION ALL
			SELECT i.inhrelid, r.name, false FROM relations r JOIN pg_inherits i ON i.inhparent = r.oid
		)
		SELECT c.oid, r.name, format('%I.%I', n.nspname, c.relname), c.relkind::text, r.root, c.relkind NOT IN ('p', 'v'), c.relpersistence = 'p',
			c.relrowsecurity, NOT coalesce((SELECT rolsuper OR rolbypassrls OR (pg_has_role(p.oid, c.relowner, 'usage') AND NOT c.relforcerowsecurity)
				FROM pg_roles p WHERE p.rolname = $2), false),
			c.relreplident::text,
			NOT EXISTS (SELECT FROM pg_class h, pg_options_to_table(h.reloptions) o
				WHERE h.oid IN (c.oid, c.reltoastrelid) AND o.option_name = 'autovacuum_enabled' AND NOT o.option_value::bool),
			c.relpages > 0 OR coalesce(pg_stat_get_tuples_inserted(c.oid), 0) > 0, has_table_privilege(c.oid, 'SELECT')
		FROM relations r JOIN pg_class c ON c.oid = r.oid JOIN pg_namespace n ON n.oid = c.relnamespace
		ORDER BY array_position($1, r.name), NOT r.root, c.relname`, tableNames(func(*expected) bool { return true }), role) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
}

// leaves returns the relations that store the rows of the given tables, or of all tables if none is
// given.
func (p *target) leaves(of ...string) (found []relation) {
	for _, r := range p.relations {
		if r.Leaf && (len(of) == 0 || slices.Contains(of, r.Table)) {
			found = append(found, r)
		}
	}
	return found
}

// bytes returns the total size of the main forks of relations. pg_relation_size takes a lock on
// each relation, so bytes waits behind a session that holds ACCESS EXCLUSIVE.
func (e *exam) bytes(of ...relation) (sum int64) {
	e.one("SELECT coalesce(sum(pg_relation_size(oid)), 0)::int8 FROM unnest($1::oid[]) oid", []any{oidsOf(of)}, &sum)
	return sum
}

// root returns the table itself rather than a partition, or nil if it does not exist.
func (p *target) root(table string) *relation {
	for i := range p.relations {
		if r := &p.relations[i]; r.Root && r.Table == table {
			return r
		}
	}
	return nil
}

// relation returns the relation with this OID. If there is none, relation returns a placeholder
// whose name is good enough for a finding.
func (p *target) relation(oid uint32) *relation {
	for i := range p.relations {
		if p.relations[i].OID == oid {
			return &p.relations[i]
		}
	}
	return &relation{Name: fmt.Sprintf("the relation %d", oid)}
}

// oids returns the OIDs of all relations of idem, in the order in which findings are reported.
func (p *target) oids() []uint32 { return oidsOf(p.relations) }

func oidsOf(relations []relation) (all []uint32) {
	for _, r := range relations {
		all = append(all, r.OID)
	}
	return all
}

// expectation returns the table definition that r should match.
func (r *relation) expectation() *expected {
	for i := range tables {
		if tables[i].name == r.Table {
			return &tables[i]
		}
	}
	return &expected{name: r.Table}
}
