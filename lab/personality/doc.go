// Package personality imitates servers and poolers that speak the Postgres protocol and are not
// PostgreSQL.
//
// The tests of this repository cannot run those servers. A [Proxy] in front of a PostgreSQL server
// imitates their documented differences instead. The proxy refuses the statements that such a
// server refuses, with the error that users have reported. It grants advisory locks that lock
// nothing, lets a COMMIT fail with a conflict, or answers a COMMIT with an error that leaves its
// outcome in doubt. Everything else is PostgreSQL. A personality therefore shows how a program
// handles a refusal, and shows nothing else about the imitated server.
//
// Each personality lists its sources. docs/portability.md says what follows for users.
//
//	proxy, err := personality.New(personality.CockroachDB, dsn, personality.Faults{})
//	pool, err := pgxpool.New(ctx, proxy.DSN())
package personality
