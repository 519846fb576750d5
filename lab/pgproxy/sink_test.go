package pgproxy_test

import (
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/idem-go/idem/lab/pgproxy"
)

// sink is a server that accepts every client and answers nothing. At the end of a connection it
// reports what it has received.
type sink struct {
	listener net.Listener
	received chan []byte
}

func newSink(t testing.TB) *sink {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	s := &sink{listener, make(chan []byte, 1024)}
	go s.serve()
	return s
}

var (
	startupPacket = []byte("\x00\x00\x00\x09\x00\x03\x00\x00\x00")
	welcome       = []byte("R\x00\x00\x00\x08\x00\x00\x00\x00Z\x00\x00\x00\x05I")
)

func (s *sink) serve() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			if _, err := io.ReadFull(client, make([]byte, len(startupPacket))); err != nil {
				return
			}
			client.Write(welcome)
			got, _ := io.ReadAll(client)
			s.received <- got
		}()
	}
}

func (s *sink) dsn() string {
	addr := s.listener.Addr().(*net.TCPAddr)
	return "host=127.0.0.1 user=nobody sslmode=disable port=" + strconv.Itoa(addr.Port)
}

// connect returns a client that the sink has accepted.
func (s *sink) connect(t testing.TB, p *pgproxy.Proxy) *net.TCPConn {
	t.Helper()
	client, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	client.Write(startupPacket)
	if _, err := io.ReadFull(client, make([]byte, len(welcome))); err != nil {
		t.Fatal(err)
	}
	return client.(*net.TCPConn)
}
