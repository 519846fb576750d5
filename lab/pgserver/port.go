package pgserver

import (
	"errors"
	"math/rand/v2"
	"net"
)

// FreePort returns a port on which no program listens. The port is below the range from which
// systems choose ports of outgoing connections. Otherwise the system could give a client the port
// of a server that is just restarting.
func FreePort() (int, error) {
	const first, last = 15000, 32000
	for range 100 {
		port := first + rand.IntN(last-first)
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port found")
}
