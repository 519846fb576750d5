//go:build unix

package txn

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"testing"
	"time"
)

const patience = 2 * time.Minute

// pair returns both ends of a connection.
func pair(t *testing.T, network, address string) (here, there net.Conn) {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if here, err = net.Dial(network, listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

func pairs(t *testing.T, test func(t *testing.T, here, there net.Conn)) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			here, there := pair(t, network, address)
			if err := here.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			test(t, here, there)
		})
	}
}

func TestSocket_WaitReadableReadsNothing(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, here, there net.Conn) {
		w := socketOf(here)
		for _, text := range []string{"before", "and again"} {
			if _, err := there.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			for range 2 { // waiting does not consume the data
				if !w.waitReadable() {
					t.Fatal("nothing arrives")
				}
			}
			got := make([]byte, len(text))
			if n, err := here.Read(got); err != nil || string(got[:n]) != text {
				t.Errorf("read %q, %v", got[:n], err)
			}
		}
	})
}

func TestSocket_WaitReadableNoticesLaterData(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, here, there net.Conn) {
		w := socketOf(here)
		for range 100 {
			arrived := make(chan bool, 1)
			go func() { arrived <- w.waitReadable() }()
			if _, err := there.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if !<-arrived {
				t.Fatal("nothing arrives")
			}
			if _, err := here.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestSocket_WaitReadableNoticesEnd(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, here, there net.Conn) {
		there.Close()
		if !socketOf(here).waitReadable() {
			t.Error("the end did not arrive")
		}
	})
}

func TestSocket_WaitReadableEndsWithDeadline(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, here, there net.Conn) {
		w, arrived := socketOf(here), make(chan bool, 1)
		go func() { arrived <- w.waitReadable() }()
		if err := here.SetDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if <-arrived {
			t.Error("something has arrived")
		}
		if err := here.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := there.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if n, err := here.Read(got); err != nil || string(got[:n]) != "late" {
			t.Errorf("read %q, %v", got[:n], err)
		}
	})
}

// A wrapper may have read ahead. Waiting on the socket below it could block forever.
func TestSocketOf_RefusesWrappedConnections(t *testing.T) {
	t.Parallel()
	here, _ := pair(t, "tcp", "127.0.0.1:0")
	if socketOf(here) == nil {
		t.Error("a TCP connection is refused")
	}
	if socketOf(wrapped{here}) != nil || socketOf(ahead{here.(*net.TCPConn)}) != nil {
		t.Error("a wrapped connection is accepted")
	}
	if socketOf(tls.Client(here, &tls.Config{})) == nil {
		t.Error("TLS over a socket is refused")
	}
	if socketOf(tls.Client(wrapped{here}, &tls.Config{})) != nil {
		t.Error("TLS over a wrapped connection is accepted")
	}
}

type wrapped struct{ net.Conn }

type ahead struct{ *net.TCPConn }
