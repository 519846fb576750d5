package fleet

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed schema.sql
var schema string

// Table is a table of the service whose rows belong to tenants.
type Table struct {
	Name   string // qualified with its schema, as in "public.orders"
	Tenant string // the column with the name of the tenant
}

// Install creates the schema fleet in a cluster and adds the triggers to idem's tables and to
// tables. Calling Install again is safe.
//
// The role of the service then needs USAGE on the schema fleet, SELECT on fleet.tenants, UPDATE on
// fleet.tenants.copied (for a row lock), and INSERT on fleet.changes. The role that calls Move must
// own the tables.
func Install(ctx context.Context, c Cluster, tables []Table) error {
	return pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, schema); err != nil {
			return err
		}
		for _, t := range tables {
			p := part{name: qualified(t.Name)}
			if err := p.describe(ctx, tx.Conn()); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, guardOf(t, &p)); err != nil {
				return fmt.Errorf("fleet: guard %s: %w", t.Name, err)
			}
		}
		return nil
	})
}

// guardOf returns the SQL of a table's trigger. The trigger checks that the cluster is the home of
// the row's tenant, and notes the key of the row. An UPDATE that changes the key or the tenant does
// both for the old and the new row. Each table gets its own function, because a generic function
// that looks up columns by name would be several times slower.
func guardOf(t Table, p *part) string {
	entered := func(row string) string {
		tenant := row + "." + identifier(t.Tenant)
		key := row + "." + strings.Join(p.keys, ", "+row+".")
		return fmt.Sprintf("PERFORM fleet.enter(%s, true); PERFORM fleet.note(%[1]s, %s, jsonb_build_array(%s));", tenant, literal(p.name), key)
	}
	return fmt.Sprintf(`
CREATE OR REPLACE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN %[3]s END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    IF TG_OP = 'INSERT' OR (%[5]s) IS DISTINCT FROM (%[6]s) THEN %[4]s END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER fleet BEFORE INSERT OR UPDATE OR DELETE ON %[2]s
    FOR EACH ROW WHEN (current_setting('fleet.moving', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION %[1]s()`,
		"fleet."+identifier("enter_"+t.Name), qualified(t.Name), entered("OLD"), entered("NEW"), named("NEW", t, p), named("OLD", t, p))
}

// named returns the tenant and the key columns of a row.
func named(row string, t Table, p *part) string {
	return row + "." + identifier(t.Tenant) + ", " + row + "." + strings.Join(p.keys, ", "+row+".")
}

func identifier(name string) string { return pgx.Identifier{name}.Sanitize() }

func qualified(name string) string { return pgx.Identifier(strings.Split(name, ".")).Sanitize() }

// literal returns s as an SQL string literal. COPY does not accept parameters.
func literal(s string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
