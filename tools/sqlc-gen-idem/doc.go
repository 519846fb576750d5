// Sqlc-gen-idem is the sqlc plugin that generates the statements of internal/db. A query is written
// once, as plain SQL in queries/.
//
//	queries/*.sql ─┐
//	migrations/  ──┴─ sqlc ── names, parameters, types ── sqlc-gen-idem ── internal/db/*.sql.go
//
// For each package in sqlc.yaml, sqlc runs the plugin and passes a GenerateRequest as JSON
// (request.go). The plugin answers with Go files.
//
// # The text of a statement
//
// Package qualify adds the schema to every operator, function, type and relation. It also adds a
// cast to every parameter that has none, to the type that sqlc has inferred. As a result, no
// search_path changes what a statement does. The statement also has the same meaning in the simple
// protocol, where a parameter is a literal. If sqlc cannot infer the type of a parameter,
// generation fails, and the query has to cast it.
//
// # Wire formats
//
// No format depends on the settings of a session (gotype.go). A timestamptz and a bytea have the
// binary format. Numbers, booleans, text and UUIDs have the text format, which no setting changes.
// The simple protocol has no binary format. The plugin therefore marks timestamptz columns in the
// text, and package roundtrip puts timestamptz_send around them there. A column of any other type
// is an error, and the query has to convert it. A column named _ is not read.
//
// # The Go code
//
// A statement is a struct with its parameters and its result:
//
//	show := db.ShowOperation{OperationID: id}
//	show.Queue(trip)                   // adds the statement to a round trip
//	trip.Send(ctx)
//	show.Read(trip)                    // reads its answer, in the order of Queue
//	show.Found, show.State
//
// Every parameter has a name and a Go type, so that parameters cannot be confused. A statement with
// :one has the field Found and embeds its row. One with :many has Rows, or the method each if it is
// @wrapped. One with :execrows has Affected. A parameter that may be NULL is a pointer. In a
// result, NULL becomes the zero value; a numeric or boolean column that may be NULL is an error,
// and the query has to use coalesce.
//
// Three options in sqlc.yaml replace the Go types that follow from SQL by domain types:
//
//   - types gives the Go type of a parameter or column.
//   - conversions says how to encode and decode a type that is not a kind of string, and which of
//     its values is NULL.
//   - parts declares a field that holds several parameters or columns, such as the name of a dead
//     letter. The query says which parts its request (@in) and its rows (@out) have.
//
// # Annotations
//
// A line of a query's comment that begins with @ is for the plugin:
//
//	@prepared    connections prepare the statement as idem_ and its name in snake case
//	@replan      connections prepare it again from time to time, to get a new plan
//	@pgx         the statement also runs on pgx, or only there if it has arrays
//	@in A, B     the request has these parts
//	@out A, B    a row has these parts; a row of one part and nothing else is a value of its type
//	@row Name    the type of a row, which queries may share; :one then has a field of that name
//	@wrapped     the request is not exported, and a hand-written type uses it
//
// With @pgx, the method Args returns the parameters.
//
// With the option style: pgx, the plugin generates functions that run their query with pgx.
// internal/statsdb uses this style, because its statements do not share a round trip.
package main
