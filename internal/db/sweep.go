package db

// Sweeper is a run that sweeps a table: it has the row of that name in idem.sweeps as long as the row has its id.
type Sweeper struct{ Name, ID string }

// Position is where a sweep is.
type Position struct {
	Part  string // as schema.table
	Block int64  // of that part
}
