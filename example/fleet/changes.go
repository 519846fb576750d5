package fleet

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// listen makes every transaction of the tenant note in fleet.changes which rows it writes, until
// the connection m.fence is closed.
//
// Every writing transaction tries to take a shared lock. While the mover waits for or holds the
// exclusive lock, the attempt fails and the trigger notes the change. listen returns once the mover
// has the exclusive lock. By then all transactions that did not note their changes have ended. If
// listen waits for the lock for longer than m.Patience, it gives up its place in the queue of the
// lock and tries again.
func (m *move) listen(ctx context.Context) error {
	for {
		_, err := m.fence.Exec(ctx, `SELECT set_config('lock_timeout', $1, false)`, milliseconds(m.Patience))
		if err == nil {
			_, err = m.fence.Exec(ctx, `SELECT pg_advisory_lock(1718379894, hashtext($1))`, m.tenant)
		}
		if err == nil {
			_, err = m.fence.Exec(ctx, `RESET lock_timeout`)
		}
		if !busy(err) {
			return err
		}
		m.reached(Waiting)
	}
}

// forgetChanges deletes the notes in fleet.changes of transactions that are visible in the
// snapshot. The round of copying with this snapshot has copied their rows. The notes of later
// transactions remain.
func (m *move) forgetChanges(ctx context.Context, snapshot string) error {
	_, err := m.fence.Exec(ctx, `DELETE FROM fleet.changes WHERE tenant = $1 AND pg_visible_in_snapshot(at, $2::text::pg_snapshot)`, m.tenant, snapshot)
	return err
}

// noted returns the set of tables with changed rows of the tenant, as noted in fleet.changes.
func (m *move) noted(ctx context.Context, from pgx.Tx) (map[string]bool, error) {
	rows, _ := from.Query(ctx, `SELECT DISTINCT part FROM fleet.changes WHERE tenant = $1`, m.tenant)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	noted := map[string]bool{}
	for _, name := range names {
		noted[name] = true
	}
	return noted, err
}

// copyChanges copies the rows that have changed since the last round. It forces plans that look up
// rows by key and never read a whole table, because the tenant has to wait during the last round.
func (m *move) copyChanges(ctx context.Context, from, to pgx.Tx, operationsAs map[string]string) error {
	noted, err := m.noted(ctx, from)
	if err != nil {
		return err
	}
	// Disabled plan types make the estimated cost of every plan very high. Postgres would then use
	// the JIT compiler, which takes seconds.
	const lookUp = `SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL jit = off`
	for _, side := range []pgx.Tx{from, to} {
		if _, err := side.Exec(ctx, lookUp, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	for i := range m.parts {
		p := &m.parts[i]
		if p.late || p.changes == "" && !noted[p.name] {
			continue
		}
		if p.values = nil; p.name == operations {
			p.values = operationsAs
		}
		rows, err := copyChanged(ctx, from, to, p, m.tenant)
		if err != nil {
			return fmt.Errorf("fleet: copy %s: %w", p.name, err)
		}
		m.report.Rows += rows
	}
	return nil
}

// copyChanged makes the changed rows equal in both clusters. The temporary table named arriving
// gets a row for each change: the key, and the columns of the changed row, which are NULL if the
// row was deleted.
func copyChanged(ctx context.Context, from, to pgx.Tx, p *part, tenant string) (int64, error) {
	names, changes := p.changed(tenant)
	one := *p
	if len(names) < len(p.keys) {
		one.rows = "true" // needs no condition: the changed keys are keys of the tenant's operations
	}
	var shape, same, columns []string
	for i, name := range names {
		shape = append(shape, "t."+p.keys[i]+" AS "+name)
		same = append(same, "t."+p.keys[i]+" = c."+name)
		columns = append(columns, "c."+name)
	}
	for _, c := range p.columns {
		shape, columns = append(shape, "t."+c), append(columns, "t."+c)
	}
	matches := strings.Join(same, " AND ")
	// OFFSET 0 is an optimizer fence: the planner must look up each row by its key.
	query := "SELECT " + strings.Join(columns, ", ") + " FROM (" + changes + ") c (" + strings.Join(names, ", ") +
		") LEFT JOIN LATERAL (" + one.query(p.columns, matches) + " OFFSET 0) t ON true"
	if err := stream(ctx, from, to, query, "SELECT "+strings.Join(shape, ", ")+" FROM "+p.name+" t"); err != nil {
		return 0, err
	}
	if err := deleteGone(ctx, to, p, names, matches); err != nil {
		return 0, err
	}
	return insert(ctx, to, p)
}

// deleteGone deletes from the new home the rows that were noted as changed and no longer exist in
// the old home. It looks up each row by its key. The ctid alone does not identify a row, because
// rows of different partitions may have the same ctid. IS TRUE prevents the planner from turning
// the filter into a join.
func deleteGone(ctx context.Context, to pgx.Tx, p *part, names []string, matches string) error {
	changed := "SELECT " + strings.Join(names, ", ") + " FROM pg_temp.arriving"
	keys := strings.Join(p.keys, ", ")
	_, err := to.Exec(ctx, "DELETE FROM "+p.name+" WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM ("+changed+" GROUP BY "+strings.Join(names, ", ")+
		") c CROSS JOIN LATERAL (SELECT t.ctid FROM "+p.name+" t WHERE "+matches+" OFFSET 0) t)) AND (("+
		strings.Join(p.keys[:len(names)], ", ")+") IN ("+changed+")) IS TRUE AND ("+keys+") NOT IN (SELECT "+keys+" FROM pg_temp.arriving WHERE "+p.keys[0]+" IS NOT NULL)")
	return err
}

// changed returns a query for the keys of the changed rows of p, and the names of the columns of
// that query.
func (p *part) changed(tenant string) (names []string, query string) {
	if p.changes != "" {
		return []string{"changed_0"}, p.changes
	}
	var values []string
	for i, of := range p.types {
		names = append(names, fmt.Sprintf("changed_%d", i))
		values = append(values, fmt.Sprintf("(c.key->>%d)::%s", i, of))
	}
	return names, "SELECT DISTINCT " + strings.Join(values, ", ") + " FROM fleet.changes c WHERE c.tenant = " + literal(tenant) + " AND c.part = " + literal(p.name)
}
