//go:build unix

package wire

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

func TestWhatArrivesIsLeftToTheReader(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, here, there net.Conn) {
		w := Of(here)
		for _, text := range []string{"before", "and again"} {
			if _, err := there.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			for range 2 { // it was there before, and is afterwards
				if !w.Arrives() {
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

func TestWhoWaitsIsToldOfWhatComesLater(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, here, there net.Conn) {
		w := Of(here)
		for range 100 {
			arrived := make(chan bool, 1)
			go func() { arrived <- w.Arrives() }()
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

func TestEndOfTheOtherSideArrives(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, here, there net.Conn) {
		there.Close()
		if !Of(here).Arrives() {
			t.Error("the end did not arrive")
		}
	})
}

func TestDeadlineEndsTheWaitAndNothingElse(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, here, there net.Conn) {
		w, arrived := Of(here), make(chan bool, 1)
		go func() { arrived <- w.Arrives() }()
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

// What is between a connection and its socket may have read ahead: there is nothing to wait for then, and one would wait for good.
func TestOnlyASocketItselfHasAWire(t *testing.T) {
	t.Parallel()
	here, _ := pair(t, "tcp", "127.0.0.1:0")
	if Of(here) == nil {
		t.Error("a socket has none")
	}
	if Of(wrapped{here}) != nil || Of(ahead{here.(*net.TCPConn)}) != nil {
		t.Error("a wrapped connection has one")
	}
	if Of(tls.Client(here, &tls.Config{})) == nil {
		t.Error("TLS over a socket has none")
	}
	if Of(tls.Client(wrapped{here}, &tls.Config{})) != nil {
		t.Error("TLS over a wrapped connection has one")
	}
}

type wrapped struct{ net.Conn }

type ahead struct{ *net.TCPConn }
