// Package idemtest holds your own code to what idem promises: a handler, a function, a consumer of messages, an operation.
//
//	idemtest.Handler(t, idemtest.HandlerSuite{
//		New:      func(t testing.TB) (http.Handler, *pgxpool.Pool) { pool := idemtest.Pool(t); …; return NewServer(pool), pool },
//		Request:  func() *http.Request { … }, // always the same, key included
//		Other:    func() *http.Request { … }, // the same key, another payload
//		Stranger: func() *http.Request { … }, // the same key and payload, another principal
//		Effects:  func(ctx context.Context, pool *pgxpool.Pool) (int, error) { … },
//	})
//
// [Handler], [Func], [Consumer] and [Operation] run it under duplicates one after another and at once, with another payload, as another
// principal, under another key, and late; they cut its connection at every statement, lose the answer of each one, COMMIT included, answer with SQLSTATE
// 40001, and have its caller leave. Of an operation the process dies at each statement, and may have been one of the last release.
// Then they count the effects, and hold them against the records and against what the caller was told.
//
// What is broken is reported by t.Errorf, each promise once. The first line names it, and is the same for every program; what has
// happened and how to mend it follows. docs/testing-reference.md explains them all, and
// docs/testing.md says what this cannot see.
// With go test -short a suite takes a few seconds and breaks fewer statements.
//
// [Replay] holds operations to histories in files, with no database.
//
// [Pool] gives each trial a database of its own, on the server at DATABASE_URL or one that it starts. It connects through a proxy of
// this package, which knows the protocol and breaks it where a suite says.
//
// The package is for tests. It links testing, pgx, and packages of idem.
package idemtest
