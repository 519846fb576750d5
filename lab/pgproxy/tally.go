package pgproxy

import "sync/atomic"

// Tally counts what clients asked for, from the first message after authentication on.
type Tally struct {
	// Turns counts the times that a client handed the conversation over and had to wait: it sent Sync, Query,
	// FunctionCall or a Flush with something to flush, at a moment when the server owed it no answer. What it sends
	// before it has been sent the last answer belongs to the same turn: a pipeline is one turn however many statements
	// and Syncs it has. So the number of turns is the number of network round trips that the client paid for.
	//
	// Connecting, authentication, CancelRequest and Terminate are no turns. COPY FROM STDIN is one: pgx sends the data
	// without waiting for the server's consent, and the turn of a client that does wait is not counted. Preparing a
	// statement is one, and so is the ping of a pool. A turn that was cut before it was forwarded is none.
	//
	// Two Syncs that a client sends without waiting in between are one turn for certain if they reach the proxy
	// together, as they do when they are written at once and fit into 32 KiB. Written one by one, they can be
	// overtaken by the answer to the first: then the proxy cannot know that the client did not wait for it.
	Turns int

	// Syncs counts the messages that the server answers by ReadyForQuery: Sync, Query, FunctionCall.
	Syncs int

	// Statements counts the statements that were to be executed.
	Statements int
}

// Tally is what the connection has counted.
func (c *Conn) Tally() Tally { return c.dialogue.counters.tally() }

// ResetTally sets the counters of the connection to zero and returns what they were.
func (c *Conn) ResetTally() Tally { return c.dialogue.counters.reset() }

// Tally is what all connections together have counted, those that are over included.
func (p *Proxy) Tally() Tally { return p.counters.tally() }

// ResetTally sets the counters of the proxy to zero and returns what they were. Those of the connections go on.
func (p *Proxy) ResetTally() Tally { return p.counters.reset() }

type counters struct{ turns, syncs, statements atomic.Int64 }

func (c *counters) tally() Tally {
	return Tally{int(c.turns.Load()), int(c.syncs.Load()), int(c.statements.Load())}
}

func (c *counters) reset() Tally {
	return Tally{int(c.turns.Swap(0)), int(c.syncs.Swap(0)), int(c.statements.Swap(0))}
}
