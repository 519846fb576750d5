package faultproxy

// Kind says what a Fault does to a flight, that is, to everything that a client sends before it
// waits for an answer.
type Kind int

const (
	// Cut closes the connection before the flight of statements reaches the server.
	Cut Kind = iota
	// Lose closes the connection after the server has executed the flight of statements. The client
	// receives no answer.
	Lose
	// Conflict makes the server answer the flight with SQLSTATE 40001. For a Conflict, Fault.At
	// counts only flights inside a transaction, and not ROLLBACK.
	Conflict
	// Notify calls Fault.Then and then lets the flight of statements pass unchanged.
	Notify
	// Freeze simulates a crash of the client's process before the flight reaches the server. For
	// the server, all connections end. For the client, the connections stay open, but neither they
	// nor new connections get an answer until Thaw.
	Freeze
	// FreezeAfter does the same as Freeze, but after the server has executed the flight of
	// statements.
	FreezeAfter
	// Outage closes all connections before the flight of statements reaches the server. The proxy
	// refuses new connections until Disarm.
	Outage
)

// Fault is a fault that the proxy injects once, into one flight of statements (see the package
// comment).
type Fault struct {
	Kind Kind
	At   int // number of flights that pass before the fault fires
	// Then, if not nil, is called when the fault fires, before the fault closes the connection on
	// which the flight arrived.
	Then func()
}

// Result is the outcome of a Fault.
type Result struct {
	Fired  bool
	SQL    string // the first statement of the flight
	Commit bool   // the server answered the flight with COMMIT; set for Lose and FreezeAfter only
	Open   bool   // a transaction was open when Freeze or FreezeAfter fired
}

func (k Kind) freezes() bool { return k == Freeze || k == FreezeAfter }
