package pgproxy

import "fmt"

// Action is what a trap, [Conn.Cut] or [Proxy.Refuse] does to a connection.
type Action int

const (
	// Reset ends the connection. The client gets RST, and the server gets the end of the stream.
	// Bytes that do not fit into the socket of a slow client are lost.
	Reset Action = iota + 1
	// Hangup ends the connection. The client gets FIN, and the server gets the end of the stream.
	Hangup
	// BlackHole discards everything in both directions from now on and closes nothing. The server
	// does not notice when the client closes its side: the session keeps its locks until [Conn.Cut]
	// or [Proxy.Close].
	BlackHole
	// Freeze holds everything that follows in the same direction until [Conn.Resume]. No byte is
	// lost.
	Freeze
)

func (a Action) String() string {
	switch a {
	case Reset:
		return "reset"
	case Hangup:
		return "hang up"
	case BlackHole:
		return "black hole"
	case Freeze:
		return "freeze"
	}
	return fmt.Sprintf("Action(%d)", int(a))
}
