// Package statsdb holds the statements of package stats as typed requests. All of it is generated from queries/stats.
package statsdb
