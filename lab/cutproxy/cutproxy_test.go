package cutproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/idem-go/idem/lab/cutproxy"
)

// echo listens, and says back what it hears.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); io.Copy(conn, conn) }()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, p *cutproxy.Proxy) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, bufio.NewReader(conn)
}

func TestProxyForwardsUntilItIsToldToBreakOrToListenNoMore(t *testing.T) {
	t.Parallel()
	p, err := cutproxy.New(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn, answers := dial(t, p)
	fmt.Fprintln(conn, "hello")
	if line, err := answers.ReadString('\n'); line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
	p.Deafen(true)
	fmt.Fprintln(conn, "lost") // it goes on being read, into nothing
	p.Cut()
	if line, err := answers.ReadString('\n'); err == nil {
		t.Errorf("a connection that was cut says %q", line)
	}
	p.Deafen(false)
	conn, answers = dial(t, p)
	fmt.Fprintln(conn, "again")
	if line, err := answers.ReadString('\n'); line != "again\n" {
		t.Errorf("%q, %v", line, err)
	}
}
