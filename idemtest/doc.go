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
// after another, at the same time, and late. They reuse the key with another payload and for
// another principal, and they send other keys.
//
// They also inject faults at every statement: a cut connection, a lost answer of the server (even
// to COMMIT), SQLSTATE 40001, or a caller that cancels its context. Operation also simulates a
// crash of the process at every statement. It can start operations with the code of the previous
// release and resume them with the current code.
//
// Each trial uses a database of its own. After a trial, the suite counts the effects and compares
// the count with the records in the database and with the answers that the caller received.
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
// Import the package only in tests, because it imports package testing.
package idemtest
