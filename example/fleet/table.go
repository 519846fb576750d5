package fleet

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// part is a table, as far as it is a tenant's. Its texts are SQL about a row t.
type part struct {
	name    string                                 // qualified
	rows    string                                 // which rows are the tenant's
	delta   func(since func(string) string) string // which of these may have changed; since is a condition on a row of that alias
	lasting string                                 // which of these no purge deletes during a move; "" is all
	changes string                                 // a query for what has changed, by the first columns of the key; "" is what was noted of the table
	columns []string
	keys    []string
	types   []string          // of the keys
	numbers []string          // columns that get the next numbers of the new cluster
	values  map[string]string // what is written instead of a column
	late    bool              // copied behind the fence alone, in the order of its key
}

// now stands for a moment that is the same on both sides.
const now = "$now"

const operations = "idem.operations"

// left is in front of the state of an operation that was under way when its tenant left.
const left = "left "

// open is of an operation that has not ended, here or where it comes from.
func open(alias string) string {
	return "(" + alias + ".state IN ('running', 'parked', 'arriving') OR starts_with(" + alias + ".state, '" + left + "'))"
}

// partsOf lists what is the tenant's. Operations come before their steps, so that no purge takes these for orphans.
// Operations that are under way are found by their states.
func partsOf(tenant string, tables []Table, states []string) []part {
	within := func(column string) string { // "0" is next to "/"
		return fmt.Sprintf(`%s >= %s AND %[1]s < %[3]s`, column, literal(tenant+"/"), literal(tenant+"0"))
	}
	of := func(which string) string {
		return `t.operation_id IN (SELECT o.id FROM idem.operations o WHERE ` + within("o.scope") + which + `)`
	}
	// A step is written in a commit that writes the row of its operation as well, and a signal is sent only to one that has not ended.
	ofChanged := func(since func(string) string) string { return of(" AND (" + open("o") + " OR " + since("o") + ")") }
	changed := changedOperations(tenant, within("o.scope"), states)
	const kept = `t.expires_at > ` + now + ` + interval '5 minutes'`

	parts := []part{
		{name: "idem.records", rows: within("t.scope"), lasting: kept},
		{name: operations, rows: within("t.scope"), lasting: open("t"), changes: changed,
			delta: func(since func(string) string) string { return "(" + open("t") + " OR " + since("t") + ")" }},
		{name: "idem.steps", rows: of(""), delta: ofChanged, changes: changed, lasting: of(" AND " + open("o"))},
		{name: "idem.signals", rows: of(""), delta: ofChanged, changes: changed, lasting: of(" AND " + open("o"))},
		{name: "idem.inbox", rows: within("t.consumer"), lasting: kept},
		{name: "idem.published", rows: within("t.aggregateid"), lasting: kept},
		{name: "idem.audit", rows: within("t.scope"), lasting: `t.at > ` + now + ` - interval '1 day'`},
		{name: "idem.dead_letters", rows: `(t.side = 'outbox' AND ` + within("t.key") + ` OR t.side = 'inbox' AND ` + within("t.consumer") + `)`},
	}
	for _, t := range tables {
		parts = append(parts, part{name: qualified(t.Name), rows: fmt.Sprintf(`t.%s = %s`, identifier(t.Tenant), literal(tenant))})
	}
	return append(parts,
		part{name: "idem.delayed", rows: within("t.aggregateid"), late: true},
		part{name: "idem.outbox", rows: within("t.aggregateid"), late: true, values: notHeld})
}

// notHeld removes the mark of messages that the relay of the old home holds back. The relay of the new home has not made it, and would
// publish later messages of the key first. Without the mark, the messages of a key are copied and published in their order.
var notHeld = map[string]string{`"held"`: "false"}

// changedOperations is a query for the operations of a tenant whose record has changed, or whose state is one of these. There is an index of those
// that run and of those that are parked.
func changedOperations(tenant, within string, states []string) string {
	query := `SELECT (c.key->>2)::uuid FROM fleet.changes c WHERE c.part = 'idem.records' AND c.tenant = ` + literal(tenant)
	for _, state := range states {
		query += ` UNION SELECT o.id FROM idem.operations o WHERE o.state = '` + state + `' AND ` + within
	}
	return query
}

// describe reads the columns of the tables.
func describe(ctx context.Context, conn *pgx.Conn, parts []part) error {
	for i := range parts {
		if err := parts[i].describe(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

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
			return fmt.Errorf("fleet: the key of %s comes from a sequence of the cluster, so that another one may have it as well", p.name)
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

// query selects columns of the tenant's rows, of those that fulfil the condition.
func (p *part) query(columns []string, condition string) string {
	values := make([]string, len(columns))
	for i, c := range columns {
		if values[i] = "t." + c; p.values[c] != "" {
			values[i] = p.values[c] + " AS " + c
		}
	}
	return "SELECT " + strings.Join(values, ", ") + p.from(condition)
}

func (p *part) from(condition string) string {
	if condition != "" {
		condition = " AND " + condition
	}
	return " FROM " + p.name + " t WHERE " + p.rows + condition
}
