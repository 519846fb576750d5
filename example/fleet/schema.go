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

// Table is a table of the service's own.
type Table struct {
	Name   string // with its schema, as in "public.orders"
	Tenant string // the column that names the tenant
}

// Install makes what a cluster needs, and puts the tables under guard. It may be done again. The role of the service then needs USAGE on
// the schema fleet, SELECT on fleet.tenants, and UPDATE on its column copied, which is for a row lock; a mover owns the tables.
func Install(ctx context.Context, c Cluster, tables []Table) error {
	return pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, schema); err != nil {
			return err
		}
		for _, t := range tables {
			if _, err := tx.Exec(ctx, guardOf(t)); err != nil {
				return fmt.Errorf("fleet: guard %s: %w", t.Name, err)
			}
		}
		return nil
	})
}

// guardOf is a trigger of a table. A function that finds its column by name would be several times slower.
func guardOf(t Table) string {
	function := "fleet." + identifier("enter_"+t.Name)
	return fmt.Sprintf(`
CREATE OR REPLACE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN PERFORM fleet.enter(OLD.%[3]s, true); END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    IF TG_OP = 'INSERT' OR NEW.%[3]s <> OLD.%[3]s THEN PERFORM fleet.enter(NEW.%[3]s, true); END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER fleet BEFORE INSERT OR UPDATE OR DELETE ON %[2]s
    FOR EACH ROW WHEN (current_setting('fleet.moving', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION %[1]s()`,
		function, qualified(t.Name), identifier(t.Tenant))
}

func identifier(name string) string { return pgx.Identifier{name}.Sanitize() }

func qualified(name string) string { return pgx.Identifier(strings.Split(name, ".")).Sanitize() }

// literal is for COPY, which takes no parameters.
func literal(s string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
