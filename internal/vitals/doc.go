// Package vitals tells at a glance how the table of records is doing: how much is in it, how much of that has had its time,
// how far the purge is, and what is in flight.
//
// It reads no record. The figures come from the catalog, from what ANALYZE has seen and from the locks, so that a table of a
// hundred million records answers as fast as an empty one, and a role that may read none of them still learns most of it. What
// is an estimate says so, and what cannot be seen is said to be unknown, with the reason, and never guessed.
package vitals
