// Sqlc-gen-idem is the plugin by which sqlc writes requests of internal/db: a query is written once, in queries/, as a person writes SQL.
//
//	queries/*.sql ─┐
//	migrations/  ──┴─ sqlc: names, parameters, columns and their types ── sqlc-gen-idem ── internal/db/*.sql.go
//
// sqlc runs it for each package of sqlc.yaml and gives it a GenerateRequest as JSON (request.go). It answers with files.
//
// # The text
//
// Package qualify names the schema of every operator, function, type and relation, and casts every parameter that the query does not
// cast to the type that sqlc has inferred for it. Then no search_path changes what a statement does, and it means the same behind a
// pooler and under the simple protocol, where a parameter is a literal. What sqlc cannot infer is an error: the query casts it.
//
// # What travels, and how
//
// Nothing depends on the settings of a session (gotype.go): a moment and a bytea travel in binary format, all else as text, which no
// setting changes for numbers, booleans, text and UUIDs. The simple protocol knows no binary format: a moment is marked in the text,
// and package roundtrip writes timestamptz_send around it there. A column of any other type is an error: the query says what happens to it. A column that is named _ is not read.
//
// # The Go
//
// A statement is one struct, which has its parameters, and what was read:
//
//	show := db.ShowOperation{OperationID: id}
//	show.Queue(trip)                   // onto a round trip, with others
//	trip.Send(ctx)
//	show.Read(trip)                    // its answer, in the same order
//	show.Found, show.State
//
// A parameter has a name and a Go type: none can be taken for another one. :one has Found, and embeds its row; :many has Rows, and Each
// where a caller makes something else of them; :execrows has Affected. What may be NULL is a pointer as a parameter; as a result it is
// the zero value, unless that is a number, which is an error: the query says coalesce.
//
// Three options of sqlc.yaml replace the Go types that follow from SQL by those of the domain. types names the Go type of a parameter or
// column. conversions says how a type travels that is no kind of string, and which of its values is NULL. parts declares fields that hold
// several parameters or columns, such as the name of a dead letter: the query says which of them its request (@in) or its rows (@out) have.
//
// A line of the comment that begins with @ is for the plugin:
//
//	@prepared    connections prepare the statement, under the name idem_ and its own in lower case
//	@replan      and again now and then, because its plan is worth choosing again
//	@pgx         it travels by pgx as well, or alone if it has arrays: Args returns its parameters
//	@in A, B     the request has these parts
//	@out A, B    a row has these parts; a row of one part, and nothing else, is a value of its type
//	@row Name    the type of a row, which several queries may share; :one then has a field of that name
//	@wrapped     the request is not exported: a type that is written by hand uses it
//
// The option style: pgx generates functions that run their query with pgx. internal/statsdb uses it, because its statements do
// not share a round trip.
package main
