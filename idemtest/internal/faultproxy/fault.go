package faultproxy

// Kind is what is done to a flight.
type Kind int

const (
	// Cut breaks the connection before the flight has reached the server.
	Cut Kind = iota
	// Lose breaks the connection when the server has carried out the flight, before its answer has reached the client.
	Lose
	// Conflict has the server answer the flight with SQLSTATE 40001. Only flights inside of a transaction count.
	Conflict
	// Tell calls Then and lets the flight pass.
	Tell
	// Freeze is what the death of the process is to the server: it loses every connection before the flight has reached it. To the
	// process it is a silence, which lasts until the proxy thaws: no connection ends, and none is made.
	Freeze
	// FreezeBehind is the same when the server has carried out the flight.
	FreezeBehind
	// Outage breaks every connection before the flight has reached the server, and refuses new ones until Disarm.
	Outage
)

// Fault is done once, to one flight.
type Fault struct {
	Kind Kind
	At   int    // how many flights pass before
	Then func() // called when it is done, before anything is cut
}

// Shot is the outcome of a Fault.
type Shot struct {
	Fired  bool
	SQL    string // what the flight asked for
	Commit bool   // the flight was answered by COMMIT
	Open   bool   // a freeze met a transaction, which it has undone
}

func (k Kind) freezes() bool { return k == Freeze || k == FreezeBehind }
