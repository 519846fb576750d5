// Package statsdb has the SQL statements of package stats as typed requests. The requests are
// generated from the queries in queries/stats.
package statsdb
