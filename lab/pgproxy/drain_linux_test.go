package pgproxy

import (
	"net"
	"testing"

	"github.com/idem-go/idem/lab/waiting"
)

// A peer that has closed acknowledges nothing any more. A drain that waited for it would keep the
// connection to the server open for good.
func TestDrain_EndsAfterThePeerHasClosed(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client.Close()
	if _, err := conn.Write([]byte("an answer")); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() {
		drain(conn)
		close(drained)
	}()
	waiting.For(t, "the drain to end", drained)
}
