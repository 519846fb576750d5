package fleet

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// part describes a table and which of its rows belong to the tenant. The strings are SQL conditions
// on a row with the alias t, unless stated otherwise.
type part struct {
	name string // name with schema, quoted
	rows string // condition for the rows of the tenant
	// changes is an SQL query for the first key column of the changed rows. If it is empty, the
	// keys are read from fleet.changes.
	changes string
	columns []string
	keys    []string
	types   []string          // types of the key columns
	numbers []string          // columns that the new cluster fills from its sequences
	values  map[string]string // expressions that replace a column in the copy
	late    bool              // copied only in the last round, when the tenant is fenced off, in key order
}

const operations = "idem.operations"

// left is the prefix of the state of an operation that was in progress when its tenant left the
// cluster.
const left = "left "

// open returns the SQL condition that an operation is in progress, here or in the cluster that the
// operation comes from.
func open(alias string) string {
	return "(" + alias + ".state IN ('running', 'parked', 'arriving') OR starts_with(" + alias + ".state, '" + left + "'))"
}

// partsOf returns the tables with rows of the tenant. Operations come before their steps, so that
// no purge finds steps without an operation and deletes them as orphans. states are the states that
// operations in progress may have.
func partsOf(tenant string, tables []Table, states []string) []part {
	// Scopes of the tenant begin with "tenant/". "0" is the character after "/", so the range
	// selects that prefix and can use an index.
	within := func(column string) string {
		return fmt.Sprintf(`%s >= %s AND %[1]s < %[3]s`, column, literal(tenant+"/"), literal(tenant+"0"))
	}
	ofOperations := `t.operation_id IN (SELECT o.id FROM idem.operations o WHERE ` + within("o.scope") + `)`
	// A step is written only in a transaction that also updates its operation, and a signal is sent
	// only to an operation in progress. The changed operations therefore lead to all changed steps
	// and signals.
	changed := changedOperations(tenant, within("o.scope"), states)

	parts := []part{
		{name: "idem.records", rows: within("t.scope")},
		{name: operations, rows: within("t.scope"), changes: changed},
		{name: "idem.steps", rows: ofOperations, changes: changed},
		{name: "idem.signals", rows: ofOperations, changes: changed},
		{name: "idem.inbox", rows: within("t.consumer")},
		{name: "idem.published", rows: within("t.aggregateid")},
		{name: "idem.audit", rows: within("t.scope")},
		{name: "idem.dead_letters", rows: `(t.side = 'outbox' AND ` + within("t.key") + ` OR t.side = 'inbox' AND ` + within("t.consumer") + `)`},
	}
	for _, t := range tables {
		parts = append(parts, part{name: qualified(t.Name), rows: fmt.Sprintf(`t.%s = %s`, identifier(t.Tenant), literal(tenant))})
	}
	return append(parts,
		part{name: "idem.delayed", rows: within("t.aggregateid"), late: true},
		part{name: "idem.outbox", rows: within("t.aggregateid"), late: true, values: notHeld})
}

// notHeld clears the mark of messages that the relay of the old home holds back. The relay of the
// new home does not know why they are held back, and would publish later messages of the key first.
// Without the mark, it publishes the messages of a key in order.
var notHeld = map[string]string{`"held"`: "false"}

// changedOperations returns a query for the ids of a tenant's operations whose record has changed
// or whose state is one of states. The states running and parked have indexes.
func changedOperations(tenant, within string, states []string) string {
	query := `SELECT (c.key->>2)::uuid FROM fleet.changes c WHERE c.part = 'idem.records' AND c.tenant = ` + literal(tenant)
	for _, state := range states {
		query += ` UNION SELECT o.id FROM idem.operations o WHERE o.state = '` + state + `' AND ` + within
	}
	return query
}

// describe reads the columns of all parts from the catalog.
func describe(ctx context.Context, conn *pgx.Conn, parts []part) error {
	for i := range parts {
		if err := parts[i].describe(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

// describe reads the columns and the primary key of a table, and which columns get their values
// from a sequence. It fails if the table has no primary key. It also fails if the key comes from a
// sequence, because two clusters may then have used the same key. The tables that are copied late
// are an exception, because their rows get new numbers in the new home.
func (p *part) describe(ctx context.Context, conn *pgx.Conn) error {
	rows, _ := conn.Query(ctx, `
		SELECT a.attname, a.attidentity <> '' OR coalesce(starts_with(pg_get_expr(d.adbin, d.adrelid), 'nextval('), false),
		       coalesce(a.attnum = ANY (i.indkey), false), format_type(a.atttypid, a.atttypmod)
		FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
		LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum`, p.name)
	var column, of string
	var numbered, key bool
	_, err := pgx.ForEachRow(rows, []any{&column, &numbered, &key, &of}, func() error {
		column := identifier(column)
		p.columns = append(p.columns, column)
		switch {
		case numbered && p.late:
			p.numbers = append(p.numbers, column)
		case numbered && key:
			return fmt.Errorf("fleet: the key of %s comes from a sequence, so another cluster may have the same key", p.name)
		}
		if key {
			p.keys, p.types = append(p.keys, column), append(p.types, of)
		}
		return nil
	})
	if err == nil && len(p.keys) == 0 {
		err = fmt.Errorf("fleet: %s has no primary key", p.name)
	}
	return err
}

// query returns a SELECT of columns from the tenant's rows that fulfill condition.
func (p *part) query(columns []string, condition string) string {
	values := make([]string, len(columns))
	for i, c := range columns {
		if values[i] = "t." + c; p.values[c] != "" {
			values[i] = p.values[c] + " AS " + c
		}
	}
	return "SELECT " + strings.Join(values, ", ") + p.from(condition)
}

// from returns the FROM and WHERE clauses for the tenant's rows that fulfill condition.
func (p *part) from(condition string) string {
	if condition != "" {
		condition = " AND " + condition
	}
	return " FROM " + p.name + " t WHERE " + p.rows + condition
}
