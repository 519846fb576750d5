package pgproxy

import "fmt"

// Action is what happens to a connection.
type Action int

const (
	// Reset ends the connection: the client's side by RST, the server's side in order.
	Reset Action = iota + 1
	// Hangup ends the connection: the client's side by FIN, the server's side in order.
	Hangup
	// BlackHole swallows everything in both directions from here on and closes nothing. The server is not told either
	// when the client closes its side: its session lives, with all its locks, until [Conn.Cut] or [Proxy.Close].
	BlackHole
	// Freeze holds back what follows in the same direction until [Conn.Resume]. Nothing is lost.
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
