package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// verifyChecks look for rows and other objects that are missing after a restore, or on a replica
// that is to become the primary database. They include the checks of Examine that find such faults.
var verifyChecks = slices.Concat(
	only("migrations", "table", "columns", "primary-key", "collation", "unlogged", "indexes", "sequences", "triggers", "row-security", "privileges", "left-behind"),
	[]check{
		// Keys in progress whose operation is missing or has ended.
		{name: "records-without-operation", reads: []string{"records", "operations"}, run: orphans(Problem,
			`SELECT r.execution_id FROM idem.records r WHERE r.state = 'running'
			AND NOT EXISTS (SELECT FROM idem.operations o WHERE o.id = r.execution_id AND o.state IN ('running', 'parked'))`,
			"%s keys are in progress for an operation that is missing or has ended: their callers get ErrInProgress, "+
				"and no process resumes them (operations %s)",
			restoreTogether+"; if that is not possible, find out by the execution id what happened outside, and idem evict")},
		// Operations in progress without a matching record in progress.
		{name: "operations-without-record", reads: []string{"records", "operations"}, run: orphans(Problem,
			`SELECT o.id FROM idem.operations o WHERE o.state IN ('running', 'parked')
			AND NOT EXISTS (SELECT FROM idem.records r WHERE r.scope = o.scope AND r.key = o.key AND r.execution_id = o.id AND r.state = 'running')`,
			"%s operations are in progress without a record of their key: a repeated call begins another operation, "+
				"which may repeat outside calls under other keys (operations %s)",
			restoreTogether+", before a process executes them")},
		// Steps and signals of operations that do not exist.
		{name: "steps-without-operation", reads: []string{"operations", "steps", "signals"}, run: orphans(Warning,
			`SELECT s.operation_id FROM (SELECT operation_id FROM idem.steps UNION SELECT operation_id FROM idem.signals) s
			WHERE NOT EXISTS (SELECT FROM idem.operations o WHERE o.id = s.operation_id)`,
			"steps or signals exist of %s operations that have no row in idem.operations (%s)",
			"if an earlier backup of idem.operations was restored: "+restoreTogether+"; if idem purge was interrupted, its next sweep deletes them")},
		{name: "calls-in-doubt", run: callsInDoubt, reads: []string{"operations", "steps"}},
		{name: "subscription", run: subscription},
	})

// walkTimeout is the statement timeout of checks that scan whole tables.
const walkTimeout = 10 * time.Minute

// Verify examines whether a restored database, or a database that is to take over, is complete. If
// opts.Against is set, Verify also compares both databases. It scans whole tables. It returns
// errors and calls progress as Examine does.
func Verify(ctx context.Context, pool *pgxpool.Pool, opts Options, progress func(name string, done, of int)) ([]Result, error) {
	opts.Scan = true
	made := verifyChecks
	if opts.Against != nil {
		made = slices.Concat(made, againstChecks)
	}
	opts.Limits.Statement = cmp.Or(opts.Limits.Statement, walkTimeout)
	return examine(ctx, pool, opts, made, progress)
}

// few is the maximum number of IDs that a finding lists.
const few = 5

// orphans returns a check that counts the rows of the query sql, each of which is an ID. The
// parameter what is a format with two verbs %s, for the count and for the first few IDs.
func orphans(level Level, sql, what, remedy string) func(*exam) {
	return func(e *exam) {
		var count int64
		var ids string
		e.one(`SELECT count(*), coalesce(string_agg(id::text, ', ') FILTER (WHERE n <= $1), '')
			FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM (`+sql+`) AS found (id)) AS ranked`,
			[]any{few}, &count, &ids)
		if count > few {
			ids += ", …"
		}
		if count > 0 {
			e.add(level, fmt.Sprintf(what, page.Count(count), ids), remedy)
		}
	}
}

const restoreTogether = "idem.records and idem.operations have to be of the same moment: restore both from the same backup, " +
	"or see that both were replicated to the end"

// callsInDoubt counts the operations that were making an outside call when the copy of the database
// was made, so that the copy has no outcome of the call.
func callsInDoubt(e *exam) {
	var count, all int64
	e.one(`SELECT count(*) FILTER (WHERE o.kind IN ('call', 'undo') AND NOT EXISTS (SELECT FROM idem.steps s
			WHERE s.operation_id = o.id AND s.seq = o.seq AND s.outcome IN ('done', 'resolved', 'failed'))), count(*)
		FROM idem.operations o WHERE o.state IN ('running', 'parked')`, nil, &count, &all)
	if count > 0 {
		e.note(fmt.Sprintf("%s of %s operations in progress were in a call without an outcome: calls since this copy was made are unknown here",
			page.Count(count), page.Count(all)),
			"the policy of each call decides: a Keyed call is made again under its key, an Asked one is asked about, and a Once one parks; "+
				"check that no other process executes them, and list them with idem operation list")
	}
}

// subscription examines the tables of idem if this database receives any of them by logical
// replication: tables outside of the subscription, tables that are not copied yet, and a
// subscription that is still enabled.
func subscription(e *exam) {
	var subscribed bool
	if e.one(`SELECT EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = ANY ($1))`, []any{e.oids()}, &subscribed); !subscribed {
		return
	}
	var oid uint32
	var state, name string
	var enabled bool
	noted := false
	e.each(`SELECT c.oid::oid, coalesce(s.srsubstate::text, ''), coalesce(p.subname, '')::text, coalesce(p.subenabled, false)
		FROM unnest($1::oid[]) AS c (oid) LEFT JOIN (pg_subscription_rel s JOIN pg_subscription p ON p.oid = s.srsubid) ON s.srrelid = c.oid`,
		[]any{e.oids()}, []any{&oid, &state, &name, &enabled}, func() {
			r := e.relation(oid)
			switch {
			case state == "" && r.Leaf && !e.isPartitioned(r.Table, oid):
				e.problem(r.Name+" is not in a subscription, and other tables of idem are: it does not get the rows of the other database",
					"publish all tables of the schema idem together with the tables of the effects, and ALTER SUBSCRIPTION … REFRESH PUBLICATION")
			case state != "" && state != "r":
				e.problem(fmt.Sprintf("%s is not fully copied yet (srsubstate %s)", r.Name, state), "wait until the subscription has copied it")
			case state == "r" && enabled && !noted:
				noted = true
				e.note("the subscription "+name+" still replicates into idem's tables", "before the first write here: stop the writers of the other database, "+
					"wait until this one has caught up, and ALTER SUBSCRIPTION "+name+" DISABLE")
			}
		})
}

// isPartitioned reports whether the table of a relation has other relations. A publication may name
// either the partitions or the partitioned table. So a relation without an entry of its own in the
// subscription is no fault in this case.
func (e *exam) isPartitioned(table string, oid uint32) bool {
	return slices.ContainsFunc(e.relations, func(r relation) bool { return r.Table == table && r.OID != oid })
}

// againstChecks compare this database with Options.Against: the database that this one replaces, or
// of which it is a copy.
var againstChecks = []check{
	{name: "same-migrations", run: sameMigrations},
	{name: "same-owners", run: sameOwners},
	{name: "same-sequences", run: sameSequences},
	{name: "same-rows", run: sameRows},
}

// onOther calls the function work in a transaction on the database of Options.Against. Findings
// that work adds to other are lost unless work copies them to e.
func (e *exam) onOther(work func(other *exam)) {
	if e.err != nil {
		return
	}
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

// both runs sql on both databases. It reads the other database first, so that a row that is
// replicated between the two reads does not count as missing here.
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

// sameOwners compares owners and grants, in text form. Otherwise a missing privilege would be
// noticed only when the first statement of a program fails.
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

// sameSequences looks for sequences that are behind those of the other database. If this database
// takes over, such a sequence would hand out numbers that are in use.
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

// sameRows compares the number and the checksum of rows of each table. Payloads are not read,
// because they can be large. A copy that has the keys of all rows also has the rest of these rows.
func sameRows(e *exam) {
	for _, t := range tables {
		if t.checksum == "" {
			continue
		}
		sql := fmt.Sprintf(`SELECT count(*)::text || ' ' || coalesce(sum(hashtextextended(ROW(%s)::text, 0)::numeric), 0)::text FROM idem.%s`,
			t.checksum, t.name)
		here, there := e.both(sql)
		if e.err != nil {
			return
		}
		hereRows, _, _ := strings.Cut(here[0], " ")
		thereRows, _, _ := strings.Cut(there[0], " ")
		if here[0] == there[0] {
			continue
		}
		what := fmt.Sprintf("idem.%s has %s rows here and %s in the other database", t.name, hereRows, thereRows)
		if hereRows == thereRows {
			what = fmt.Sprintf("idem.%s has %s rows in both databases, and they differ", t.name, hereRows)
		}
		e.problem(what, "stop the writers of the other database, wait until this one has caught up, and compare again; "+
			"if rows are still missing, do not take over, because retries would execute again")
	}
}
