package purge

import "time"

// A table is a table that is swept. Everything that idem keeps for a limited time has an entry in
// tables.
type table struct {
	name     string // in idem.sweeps and in reports
	relation string // schema.table; may be partitioned

	// due is the SQL condition of a row r that may be deleted, after it has been kept for the
	// interval $1. It uses the clock of the database. It must be false for a row that is in
	// progress or waits for an event. It is evaluated when the row is found, and again when it is
	// deleted. The plan must be a scan of the blocks, so an indexed column is written in an
	// expression that no index matches.
	due string

	// keep is the interval $1 of due.
	keep func(*Options) time.Duration

	// id is the column that rows of the children refer to in their column operation_id. They are
	// deleted together with the row. Empty if there are no children.
	id       string
	children []string
}

// tables are swept in this order.
var tables = []table{records, operations, messages, published, acts}

// records leaves out the other states. A record in state processing was committed by an fn that
// ended its own transaction. It is kept for the person who repairs this, and the next claim of the
// key takes it over. A record in state running belongs to an operation in progress.
var records = table{
	name: "records", relation: "idem.records",
	due: `r.state OPERATOR(pg_catalog.=) ANY ('{completed,failed}'::pg_catalog.text[])
		AND (r.expires_at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	keep: func(o *Options) time.Duration { return o.Grace },
}

// operations leaves out parked operations, which wait for a person, however long.
var operations = table{
	name: "operations", relation: "idem.operations",
	due: `r.state OPERATOR(pg_catalog.=) ANY ('{completed,failed,undone}'::pg_catalog.text[])
		AND (r.ended_at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	keep: func(o *Options) time.Duration { return o.Operations },
	id:   "id", children: []string{"idem.steps", "idem.signals"},
}

// messages are the entries of the inbox: handled, failing and dead-lettered messages, with a
// retention that begins at the last attempt. The dead letters themselves are another table and stay
// until a person decides.
var messages = table{
	name: "inbox", relation: "idem.inbox",
	due: `(r.expires_at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	keep: records.keep,
}

// published are published messages. The relay has set how long they are kept.
var published = table{
	name: "published", relation: "idem.published",
	due: `(r.expires_at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	keep: func(*Options) time.Duration { return 0 },
}

// acts are the entries of the audit log.
var acts = table{
	name: "audit", relation: "idem.audit",
	due: `(r.at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	keep: func(o *Options) time.Duration { return o.Audit },
}
