package pgproxy

// Tally counts the requests of clients, beginning with the first message after authentication.
type Tally struct {
	// Turns counts how often a client sent something and had to wait for the server. A turn begins
	// when the server owes the client no answer, and the client sends Sync, Query, FunctionCall, or
	// a Flush with something to flush. Everything that the client sends before the proxy forwards
	// the last answer belongs to the same turn. A pipeline is one turn, however many statements and
	// Syncs it has. The number of turns is therefore the number of network round trips for which
	// the client waited.
	//
	// Connecting, authentication, CancelRequest and Terminate are not counted. Preparing a
	// statement counts as one turn, and so does the ping of a pool. COPY FROM STDIN counts as one
	// turn: pgx sends the data without waiting for CopyInResponse, and a client's wait for that
	// message is not counted. A turn that was cut before it was forwarded is not counted.
	//
	// Two Syncs that a client sends without waiting in between are certainly one turn if they
	// arrive at the proxy together. They do if the client writes them at once and they fit into 32
	// KiB. If the client writes them one by one, the answer to the first can overtake the second.
	// The proxy then cannot know that the client did not wait for it.
	Turns int
}

// Tally returns the counts of all connections, including closed ones.
func (p *Proxy) Tally() Tally { return Tally{int(p.turns.Load())} }

// ResetTally sets the counts to zero and returns their previous values.
func (p *Proxy) ResetTally() Tally { return Tally{int(p.turns.Swap(0))} }
