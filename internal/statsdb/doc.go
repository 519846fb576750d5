// Package statsdb holds the statements of package stats as typed requests. The statements are
// generated from queries/stats.
package statsdb
