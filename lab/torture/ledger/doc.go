// Package ledger has the tables of the workload and their checks: [Install] creates the tables,
// [Effect.Note] and [Transfer.Write] write an effect, and [Take] reads the database at the end.
package ledger
