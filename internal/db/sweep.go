package db

// Sweeper identifies a run that sweeps the table Name. The run holds the sweep as long as the row
// of that name in idem.sweeps has the run's ID.
type Sweeper struct{ Name, ID string }

// Position is the position of a sweep in a table.
type Position struct {
	Part  string // as schema.table
	Block int64  // of that part
}
