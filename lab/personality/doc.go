// Package personality plays servers and poolers that speak the protocol of Postgres and are not PostgreSQL.
//
// None of them can be run where this repository is tested. A [Proxy] in front of a PostgreSQL server refuses what their documentation
// says they refuse, with the error that they are reported to give, and does what it says they do otherwise: locks that are always
// granted, a COMMIT that loses against another transaction, a COMMIT of whose outcome the server is not certain. What is behind it
// is PostgreSQL all the same: a personality shows how a program takes a refusal, and says nothing about the rest of a server.
//
// Each personality names its sources. docs/portability.md says what follows for users.
//
//	proxy, err := personality.New(personality.CockroachDB, dsn, personality.Faults{})
//	pool, err := pgxpool.New(ctx, proxy.DSN())
package personality
