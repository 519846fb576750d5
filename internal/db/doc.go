// Package db holds the statements of the library as typed requests. A caller queues requests on a
// round trip, and each request reads its answer from the same trip.
//
// The files *.sql.go are generated: each query of queries/ becomes a request. sqlc.yaml declares
// the domain types of requests, and the queries say which of them a request has. Those types are
// written by hand. So are the few requests with logic of their own, which choose a statement or
// interpret a row.
package db
