// Sqlc-gen-idem is the sqlc plugin that generates the Go code for the statements in internal/db.
// The source of each statement is a plain SQL query in queries/.
//
//	queries/*.sql ─┐
//	migrations/  ──┴─ sqlc ── names, parameters, types ── sqlc-gen-idem ── internal/db/*.sql.go
//
// For each package in sqlc.yaml, sqlc runs the plugin and passes a GenerateRequest as JSON
// (request.go). The plugin returns the Go files.
//
// # The text of a statement
//
// Package qualify adds the schema to every operator, function, type and relation. It also casts
// each parameter without a cast to the type that sqlc has inferred. As a result, no search_path
// changes what a statement does. The statement also has the same meaning in the simple protocol,
// for which package roundtrip replaces each parameter by a literal. If sqlc cannot infer the type
// of a parameter, generation fails, and the query has to cast the parameter.
//
// # Wire formats
//
// The plugin chooses wire formats that do not depend on settings of the session (gotype.go).
// Columns of type timestamptz and bytea have the binary format. Numbers, booleans, text and UUIDs
// have the text format, which no setting changes. The simple protocol has no binary format. The
// plugin therefore marks timestamptz columns in the text, and in the simple protocol package
// roundtrip replaces the marks by timestamptz_send. A column of any other type is an error, and the
// query has to convert the column. A column named _ is not read.
//
// # The Go code
//
// The code for a statement is a struct with fields for the parameters and the result:
//
//	show := db.ShowOperation{OperationID: id}
//	show.Queue(trip)                   // adds the statement to a round trip
//	trip.Send(ctx)
//	show.Read(trip)                    // reads its answer, in the order of Queue
//	show.Found, show.State
//
// Every parameter is a field with its own name and Go type, so that callers cannot confuse two
// parameters. For a query with :one, the struct has the field Found and embeds the row. For a query
// with :many, it has the field Rows, or the method each if the query is @wrapped. For a query with
// :execrows, it has the field Affected. A parameter that may be NULL is a pointer. In a result,
// NULL becomes the zero value. A numeric or boolean column that may be NULL is an error, and the
// query has to use coalesce.
//
// By default, the Go type of a field follows from its SQL type. Three options in sqlc.yaml choose
// other Go types:
//
//   - types gives the Go type of a parameter or column.
//   - conversions says how to encode and decode a type that is not a kind of string, and which of
//     its values is NULL.
//   - parts declares a field, a part, that contains several parameters or columns, such as the name
//     of a dead letter. The query says which parts its request (@in) and its rows (@out) have.
//
// # Annotations
//
// A line in the SQL comment of a query is an instruction to the plugin if it begins with @:
//
//	@prepared    connections prepare the statement as idem_ and its name in snake case
//	@replan      connections prepare the statement again from time to time, to get a new plan
//	@pgx         the statement can also run on pgx; it runs only there if a parameter is an array
//	@in A, B     the request has these parts
//	@out A, B    a row has these parts; a row that consists of one part has the type of the part
//	@row Name    the name of the row type; queries may share it; with :one, the field of the row has this name
//	@wrapped     the request's struct is not exported; a hand-written type contains it
//
// With @pgx, the struct has the method Args, which returns the parameters as arguments for pgx.
//
// If the option style is pgx, the plugin generates functions that run their query with pgx instead
// of these structs. internal/statsdb uses this style, because its statements do not share round
// trips.
package main
