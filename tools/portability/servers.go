package portability

// Server is a server, or a pooler in front of PostgreSQL.
type Server struct {
	Name string
	// Has says how the server differs in a need. Without an entry, the server behaves like
	// PostgreSQL.
	Has map[Need]string
}

const notKnown = "not known"

// Servers lists the servers of docs/portability.md, which has the sources. A need that no source
// mentions is marked as not known.
var Servers = []Server{
	{"CockroachDB", map[Need]string{
		TransactionLocks: "since 26.2; before, granted and void", SessionLocks: "granted and void", LockTable: notKnown,
		TransactionIDs: notKnown, Sessions: notKnown, PlannerSettings: "refused", RelationSizes: notKnown,
		Listening: "refused", Durability: "no effect", Division: "a decimal", SkipLocked: "with one column family",
	}},
	{"YugabyteDB", map[Need]string{
		TransactionLocks: "since 2025.1", SessionLocks: "since 2025.1", Listening: "refused unless switched on, from 2025.2.3",
		TransactionIDs: notKnown, Sessions: notKnown, SkipLocked: "not at SERIALIZABLE", RelationSizes: notKnown, LockTable: notKnown,
	}},
	{"Aurora DSQL", map[Need]string{
		TransactionLocks: "refused", SessionLocks: "refused", LockTable: notKnown, TransactionIDs: notKnown, Listening: notKnown,
		RowLocks: "checked at COMMIT", SkipLocked: notKnown, Sessions: notKnown, RelationSizes: notKnown, PlannerSettings: notKnown,
		SessionSettings: notKnown, LocalSettings: notKnown, Durability: notKnown, Collation: "C alone",
	}},
	{"Multigres", map[Need]string{
		SessionLocks: "pin a connection", SessionSettings: "in a SELECT list", Durability: "refused", Listening: notKnown,
	}},
	{"PgDog", map[Need]string{
		SessionLocks: "pin a connection", SessionSettings: notKnown, Listening: notKnown,
	}},
	{"RDS Proxy", map[Need]string{
		SessionLocks: "pin a connection", SessionSettings: "pin a connection", Listening: notKnown,
	}},
	{"PgBouncer", map[Need]string{
		SessionLocks: "not kept in transaction mode", SessionSettings: "not kept in transaction mode", Listening: "not kept in transaction mode",
	}},
}
