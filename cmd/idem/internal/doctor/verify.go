package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/page"
)

// verifyChecks look for rows that a restore or a takeover may have lost. They include the checks of
// Examine that find the same kind of fault.
var verifyChecks = slices.Concat(
	only("migrations", "table", "columns", "primary-key", "collation", "unlogged", "indexes", "sequences", "triggers", "row-security", "privileges", "left-behind"),
	[]check{
		{name: "records-without-operation", run: recordsWithoutOperation, reads: []string{"records", "operations"}},
		{name: "operations-without-record", run: operationsWithoutRecord, reads: []string{"records", "operations"}},
		{name: "steps-without-operation", run: stepsWithoutOperation, reads: []string{"operations", "steps", "signals"}},
		{name: "calls-in-doubt", run: callsInDoubt, reads: []string{"operations", "steps"}},
		{name: "subscription", run: subscription},
	})

// walkTimeout is the statement timeout of checks that scan whole tables.
const walkTimeout = 10 * time.Minute

// VerifyNames returns the names of all checks that Verify can run, in order.
func VerifyNames() []string { return namesOf(slices.Concat(verifyChecks, againstChecks)) }

// Verify examines whether a restored database, or a database that is to take over, is complete. If
// opts.Against is set, Verify also compares both databases. It scans whole tables. Errors and
// progress are as for Examine.
func Verify(ctx context.Context, pool *pgxpool.Pool, opts Options, progress func(name string, done, of int)) ([]Result, error) {
	opts.Scan = true
	made := verifyChecks
	if opts.Against != nil {
		made = slices.Concat(made, againstChecks)
	}
	set(&opts.Limits.Statement, walkTimeout)
	return examine(ctx, pool, opts, made, progress)
}

// few is the number of IDs that a finding lists.
const few = 5

// orphans counts the rows of sql, which returns one column of IDs, and lists the first few IDs.
func (e *exam) orphans(sql string) (count int64, ids string) {
	e.one(`SELECT count(*), coalesce(string_agg(id::text, ', ') FILTER (WHERE n <= $1), '')
		FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM (`+sql+`) AS found (id)) AS ranked`,
		[]any{few}, &count, &ids)
	if count > few {
		ids += ", …"
	}
	return count, ids
}

const restoreTogether = "idem.records and idem.operations have to be of the same moment: restore both from the same backup, " +
	"or see that both were replicated to the end"

// recordsWithoutOperation looks for keys in progress whose operation is missing or has ended.
func recordsWithoutOperation(e *exam) {
	count, ids := e.orphans(`SELECT r.execution_id FROM idem.records r WHERE r.state = 'running'
		AND NOT EXISTS (SELECT FROM idem.operations o WHERE o.id = r.execution_id AND o.state IN ('running', 'parked'))`)
	if count > 0 {
		e.problem(fmt.Sprintf("%s keys are in progress for an operation that is missing or has ended: their callers get ErrInProgress, "+
			"and no process resumes them (operations %s)", page.Count(count), ids),
			restoreTogether+"; if that is not possible, find out by the execution id what happened outside, and idem evict")
	}
}

// operationsWithoutRecord looks for operations in progress without a matching record in progress.
func operationsWithoutRecord(e *exam) {
	count, ids := e.orphans(`SELECT o.id FROM idem.operations o WHERE o.state IN ('running', 'parked')
		AND NOT EXISTS (SELECT FROM idem.records r WHERE r.scope = o.scope AND r.key = o.key AND r.execution_id = o.id AND r.state = 'running')`)
	if count > 0 {
		e.problem(fmt.Sprintf("%s operations are in progress without a record of their key: a repeated call begins another operation, "+
			"which may repeat outside calls under other keys (operations %s)", page.Count(count), ids), restoreTogether+", before a process executes them")
	}
}

// stepsWithoutOperation looks for steps and signals of operations that do not exist.
func stepsWithoutOperation(e *exam) {
	count, ids := e.orphans(`SELECT s.operation_id FROM (SELECT operation_id FROM idem.steps UNION SELECT operation_id FROM idem.signals) s
		WHERE NOT EXISTS (SELECT FROM idem.operations o WHERE o.id = s.operation_id)`)
	if count > 0 {
		e.warn(fmt.Sprintf("steps or signals exist of %s operations that have no row in idem.operations (%s)", page.Count(count), ids),
			"if an earlier backup of idem.operations was restored: "+restoreTogether+"; if idem purge was interrupted, its next sweep deletes them")
	}
}

// callsInDoubt counts the operations that were in an outside call without a recorded outcome when
// the copy was made.
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
// either the partitions or the partitioned table, so a partition without an entry of its own is no
// fault.
func (e *exam) isPartitioned(table string, oid uint32) bool {
	return slices.ContainsFunc(e.relations, func(r relation) bool { return r.Table == table && r.OID != oid })
}
