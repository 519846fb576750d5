package pgproxy

import "sync/atomic"

// Tally counts the requests of clients, beginning with the first message after authentication.
type Tally struct {
	// Turns counts how often a client sent something and had to wait for the server. A turn begins
	// when the client sends Sync, Query, FunctionCall, or a Flush with something to flush, while
	// the server owes it no answer. Everything that the client sends before the proxy forwards the
	// last answer belongs to the same turn. A pipeline is one turn, however many statements and
	// Syncs it has. The number of turns is therefore the number of network round trips that the
	// client waited for.
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

	// Syncs counts the messages that the server answers with ReadyForQuery: Sync, Query,
	// FunctionCall.
	Syncs int

	// Statements counts the statements that the client asked to execute.
	Statements int
}

// Tally returns the counts of the connection.
func (c *Conn) Tally() Tally { return c.dialogue.counters.tally() }

// ResetTally sets the counters of the connection to zero and returns their previous values.
func (c *Conn) ResetTally() Tally { return c.dialogue.counters.reset() }

// Tally returns the counts of all connections, including those that are over.
func (p *Proxy) Tally() Tally { return p.counters.tally() }

// ResetTally sets the counters of the proxy to zero and returns their previous values. The counters
// of the connections are not reset.
func (p *Proxy) ResetTally() Tally { return p.counters.reset() }

type counters struct{ turns, syncs, statements atomic.Int64 }

func (c *counters) tally() Tally {
	return Tally{int(c.turns.Load()), int(c.syncs.Load()), int(c.statements.Load())}
}

func (c *counters) reset() Tally {
	return Tally{int(c.turns.Swap(0)), int(c.syncs.Swap(0)), int(c.statements.Swap(0))}
}
