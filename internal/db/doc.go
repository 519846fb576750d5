// Package db has the statements of the library as typed requests. A request is queued on a round trip with others, and reads
// its answer from the same trip.
//
// The files *.sql.go are generated: each query of queries/ is a request there. sqlc.yaml names the domain types that requests have,
// and queries/ says which of them a request has. What is written by hand is those types, and the few requests that decide
// something: which statement travels, or what a row means.
package db
