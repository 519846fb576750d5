package faultproxy

// Kind is the kind of a Fault.
type Kind int

const (
	// Cut closes the connection before the flight reaches the server.
	Cut Kind = iota
	// Lose closes the connection after the server has executed the flight. The client receives no
	// answer.
	Lose
	// Conflict makes the server answer the flight with SQLSTATE 40001. The proxy counts only
	// flights in a transaction, and no ROLLBACK.
	Conflict
	// Notify calls Then and lets the flight pass.
	Notify
	// Freeze simulates the death of the process before the flight reaches the server. The server
	// loses all connections. The client notices nothing: until Thaw its connections stay open
	// without an answer, and new ones are not answered either.
	Freeze
	// FreezeAfter does the same as Freeze, but after the server has executed the flight. The
	// package comment explains what a flight is.
	FreezeAfter
	// Outage closes all connections before the flight reaches the server, and refuses new ones
	// until Disarm.
	Outage
)

// Fault is a fault that the proxy injects once, into one flight.
type Fault struct {
	Kind Kind
	At   int // number of flights that pass before it
	// Then is called when the fault fires, before the connection of the flight is closed.
	Then func()
}

// Result is the outcome of a Fault.
type Result struct {
	Fired  bool
	SQL    string // the first statement of the flight
	Commit bool   // the server answered COMMIT; known for Lose and FreezeAfter only
	Open   bool   // Freeze or FreezeAfter interrupted an open transaction
}

func (k Kind) freezes() bool { return k == Freeze || k == FreezeAfter }
