// Package idemtest tests that your code keeps the promises of idem. The code can be an HTTP
// handler, a function, a message consumer or an operation.
//
//	idemtest.Handler(t, idemtest.HandlerSuite{
//		New:      func(t testing.TB) (http.Handler, *pgxpool.Pool) { pool := idemtest.Pool(t); …; return NewServer(pool), pool },
//		Request:  func() *http.Request { … }, // always the same, key included
//		Other:    func() *http.Request { … }, // the same key, another payload
//		Stranger: func() *http.Request { … }, // the same key and payload, another principal
//		Effects:  func(ctx context.Context, pool *pgxpool.Pool) (int, error) { … },
//	})
//
// [Handler], [Func], [Consumer] and [Operation] run your code many times. They send duplicates one
// after another, at the same time, and late. They send another payload, another principal and
// another key.
//
// They also inject faults at every statement: a cut connection, a lost answer (that of COMMIT
// included), SQLSTATE 40001, a caller that goes away. Operation also kills the process at every
// statement, and starts operations with the code of the previous release.
//
// After each trial a suite counts the effects. It compares them with the records in the database
// and with the answers that the caller received.
//
// A suite reports each broken promise once, by t.Errorf. The first line of the report names the
// promise and is the same for every program. The next lines say what happened and how to fix it.
// docs/testing-reference.md explains every promise. docs/testing.md says what the suites cannot
// detect. With go test -short a suite takes a few seconds and injects fewer faults.
//
// [Replay] checks operations against recorded histories in files, without a database.
//
// [Pool] creates a database for each trial, on the server at DATABASE_URL or on a server that Pool
// starts. The pool connects through a proxy. The proxy understands the Postgres protocol and
// injects the faults.
//
// The package is for tests: it links testing, pgx and packages of idem.
package idemtest
