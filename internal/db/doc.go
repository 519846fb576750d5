// Package db has the SQL statements of the library as typed requests. A caller queues requests on a
// round trip. After the round trip each request reads its own result.
//
// The files *.sql.go are generated: each query in queries/ becomes a request type. sqlc.yaml
// declares domain types such as Key, and comments in the queries say which of them a request has.
// The domain types are written by hand. A few requests are also written by hand, because they
// choose a statement or interpret a row.
package db
