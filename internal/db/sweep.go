package db

// Sweeper identifies one run of the sweep called Name, which reads a whole table in portions. The
// run may continue as long as the row of that name in idem.sweeps has the run's ID.
type Sweeper struct{ Name, ID string }

// Position is the position of a sweep in a table.
type Position struct {
	Part  string // the table or partition, as schema.table
	Block int64  // the number of a block in Part
}
