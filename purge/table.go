package purge

import "time"

// A table is something that is swept. Whatever idem keeps for a time has an entry in tables.
type table struct {
	name     string // in idem.sweeps and in reports
	relation string // as schema.table; it may be partitioned

	// due is what has to be true of a row r that may go, when it has rested for $1, an interval, by the database's clock. It must
	// be false of whatever is in progress, or waits for an event. It is checked when the row is found and again when it is
	// deleted, so no other plan may come of it: an indexed column is written in a way that no index serves.
	due string

	// rest is the interval.
	rest func(*Options) time.Duration

	// id is the column by which children know the row, if it has any: they go with it. Each is a table with a column operation_id.
	id       string
	children []string
}

// tables are swept in this order.
var tables = []table{records, operations, messages, published, acts}

// A record in state processing was committed by an fn that ended its transaction. It is a trace for the person who repairs that,
// and the next claim of the key takes it over. One in state running is that of an operation that goes on.
var records = table{
	name: "records", relation: "idem.records",
	due: `r.state OPERATOR(pg_catalog.=) ANY ('{completed,failed}'::pg_catalog.text[])
		AND (r.expires_at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	rest: func(o *Options) time.Duration { return o.Grace },
}

// An operation that is parked waits for a person, however long.
var operations = table{
	name: "operations", relation: "idem.operations",
	due: `r.state OPERATOR(pg_catalog.=) ANY ('{completed,failed,undone}'::pg_catalog.text[])
		AND (r.ended_at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	rest: func(o *Options) time.Duration { return o.Operations },
	id:   "id", children: []string{"idem.steps", "idem.signals"},
}

// A message that is to be tried again, or is dead, is remembered as long as one that is handled: counted from its last attempt.
// Dead letters themselves stay until a person decides.
var messages = table{
	name: "inbox", relation: "idem.inbox",
	due: `(r.expires_at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	rest: records.rest,
}

// What was published is kept for as long as its relay has said.
var published = table{
	name: "published", relation: "idem.published",
	due: `(r.expires_at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	rest: func(*Options) time.Duration { return 0 },
}

// What people did is known for as long as those may ask who look into it.
var acts = table{
	name: "audit", relation: "idem.audit",
	due: `(r.at OPERATOR(pg_catalog.+) '0'::pg_catalog.interval)
			OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)`,
	rest: func(o *Options) time.Duration { return o.Audit },
}
