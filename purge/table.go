package purge

import "time"

// table describes a database table that is swept. Every table in which idem keeps rows for a
// limited time has an entry in tables.
type table struct {
	name     string // in idem.sweeps and in reports
	relation string // schema.table; may be partitioned

	// due is the SQL condition under which a row r may be deleted. The interval $1 is how long a
	// row is kept after its end. The condition uses the clock of the database. It must be false for
	// a row that is in progress or waits for an event. It is evaluated when the row is found, and
	// again when the row is deleted. The plan must scan blocks, so the condition uses an indexed
	// column only in an expression that matches no index.
	due string

	// keep returns the interval $1 of due.
	keep func(*Options) time.Duration

	// id is the column to which the column operation_id of the child tables refers. With a row, the
	// rows of child tables that refer to it are deleted. id is empty if there are no child tables.
	id       string
	children []string
}

// tables are swept in this order.
var tables = []table{records, operations, messages, published, acts}

// records deletes only records in state completed or failed. A record in state processing was
// committed by an fn that ended its own transaction. It is kept for the person who repairs this,
// until a later claim of the expired key takes it over. A record in state running belongs to an
// operation in progress.
var records = table{
	name: "records", relation: "idem.records",
	due: `r.state OPERATOR(pg_catalog.=) ANY ('{completed,failed}'::pg_catalog.text[])
		AND (r.expires_at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	keep: func(o *Options) time.Duration { return o.Grace },
}

// operations deletes no parked operation, because a parked operation waits for a person, however
// long.
var operations = table{
	name: "operations", relation: "idem.operations",
	due: `r.state OPERATOR(pg_catalog.=) ANY ('{completed,failed,undone}'::pg_catalog.text[])
		AND (r.ended_at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	keep: func(o *Options) time.Duration { return o.Operations },
	id:   "id", children: []string{"idem.steps", "idem.signals"},
}

// messages are the entries of the inbox for handled, failing and dead-lettered messages. The
// retention of an entry begins at the last attempt. The dead letters themselves are in another
// table and stay until a person decides.
var messages = table{
	name: "inbox", relation: "idem.inbox",
	due: `(r.expires_at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	keep: records.keep,
}

// published are published messages. The relay has set when each of them expires.
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
