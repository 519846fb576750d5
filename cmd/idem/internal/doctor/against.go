package doctor

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// againstChecks compare this database with Options.Against: the database that this one replaces, or
// of which it is a copy.
var againstChecks = []check{
	{name: "same-migrations", run: sameMigrations},
	{name: "same-owners", run: sameOwners},
	{name: "same-sequences", run: sameSequences},
	{name: "same-rows", run: sameRows},
}

// onOther calls work in a transaction on the database of Options.Against. Findings of other do not
// reach the result of e unless work copies them.
func (e *exam) onOther(work func(other *exam)) {
	other := &exam{target: &target{pool: e.opts.Against, opts: e.opts}, ctx: e.ctx}
	e.failed(record.Tx(e.ctx, e.opts.Against, e.opts.Limits.Statement, func(tx pgx.Tx) error {
		other.tx = tx
		if err := other.readFacts(e.ctx, tx); err != nil {
			return err
		}
		work(other)
		return other.err
	}))
}

// both runs sql on both databases. The other database is read first: rows that replication delivers
// in between then exist here as well, and do not count as missing.
func (e *exam) both(sql string) (here, there []string) {
	e.onOther(func(other *exam) { there = other.texts(sql) })
	return e.texts(sql), there
}

// sameMigrations compares tables, columns and types, because logical replication does not copy DDL.
// A column that only the other database has is a problem. A column that only this database has is a
// warning.
func sameMigrations(e *exam) {
	here, there := e.both(`SELECT a.attrelid::regclass::text || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'idem' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1`)
	const remedy = "migrate both to the same version with idem migrate up: replication does not copy changes of the schema"
	if lost := without(there, here); len(lost) > 0 {
		e.problem("the other database has columns that this one lacks: "+strings.Join(lost, ", "), remedy)
	}
	if more := without(here, there); len(more) > 0 {
		e.warn("this database has columns that the other one lacks: "+strings.Join(more, ", "), remedy)
	}
}

// sameOwners compares owners and grants, in text form. A role that is missing here is found when
// the first statement of its program fails, which is too late.
func sameOwners(e *exam) {
	here, there := e.both(`SELECT format('%s is owned by %s and granted as %s', c.relname, pg_get_userbyid(c.relowner),
			coalesce((SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(c.relacl) a), 'by default'))
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'idem' AND c.relkind IN ('r', 'p', 'S') ORDER BY 1`)
	for _, lost := range without(there, here) {
		e.warn("in the other database, "+lost+", but not in this one",
			"copy owners and grants: neither is replicated, and pg_restore --no-owner or --no-privileges leaves them out")
	}
}

// sequenceMargin is the margin by which the remedy sets a sequence beyond the value in the other
// database. The other database may hand out that many numbers before its writers stop.
const sequenceMargin = 10_000

// sameSequences looks for sequences that are behind those of the other database. After a takeover
// such a sequence would hand out numbers that are in use.
func sameSequences(e *exam) {
	for i := range sequenceUses {
		n := &sequenceUses[i]
		var there int64
		var ok bool
		e.onOther(func(other *exam) {
			there, ok = other.last(n.sequence)
			e.result.Findings = append(e.result.Findings, other.result.Findings...)
		})
		here, known := e.last(n.sequence)
		if ok && known && here < there {
			e.add(n.level, fmt.Sprintf("the sequence idem.%s is at %d, and in the other database at %d: %s", n.sequence, here, there, n.consequence),
				setSequence(n.sequence, there+sequenceMargin))
		}
	}
}

// checksumColumns lists, for each table, the columns that go into a checksum of its rows. The
// checksum does not depend on the order of rows. Columns of time are left out, because their text
// depends on settings of the session.
var checksumColumns = map[string]string{
	"records":      "scope, key, execution_id, state, status",
	"operations":   "id, state, epoch, seq, kind, step",
	"steps":        "operation_id, seq, kind, outcome",
	"signals":      "operation_id, name, taken",
	"outbox":       "seq, id, held",
	"delayed":      "seq, id",
	"inbox":        "consumer, source, id, state",
	"dead_letters": "side, consumer, source, id, redrive_at IS NULL",
	"relay_topics": "relay, topics",
	"audit":        "id, act, outcome",
}

// sameRows compares the number and the checksum of rows of each table. Payloads are not read: a
// copy that has the keys of all rows has the rows, and payloads can be large.
func sameRows(e *exam) {
	for _, table := range tableNames(func(t *expected) bool { return checksumColumns[t.name] != "" }) {
		sql := fmt.Sprintf(`SELECT count(*)::text || ' ' || coalesce(sum(hashtextextended(ROW(%s)::text, 0)::numeric), 0)::text FROM idem.%s`,
			checksumColumns[table], table)
		here, there := e.both(sql)
		if e.err != nil {
			return
		}
		hereRows, _, _ := strings.Cut(here[0], " ")
		thereRows, _, _ := strings.Cut(there[0], " ")
		if here[0] == there[0] {
			continue
		}
		what := fmt.Sprintf("idem.%s has %s rows here and %s in the other database", table, hereRows, thereRows)
		if hereRows == thereRows {
			what = fmt.Sprintf("idem.%s has %s rows in both databases, and they differ", table, hereRows)
		}
		e.problem(what, "stop the writers of the other database, wait until this one has caught up, and compare again; "+
			"if rows are still missing, do not take over, because retries would execute again")
	}
}
