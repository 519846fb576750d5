package idemclient_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// network connects a server and its clients with pipes, for tests in a synctest bubble. The clock
// stands still there while a goroutine runs, so no timeout depends on the speed of the machine.
type network struct {
	dialed chan net.Conn
	closed chan struct{}
	open   atomic.Int64 // connections that the server has open
	ever   atomic.Int64 // connections that it ever had
}

// serveInMemory starts a server and returns the way to it.
func serveInMemory(t *testing.T, handler http.HandlerFunc) (*http.Transport, *network) {
	n := &network{dialed: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{ConnState: n.watch, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // or the server would not notice that the client goes away
		handler(w, r)
	})}
	go server.Serve(n)
	base := &http.Transport{DialContext: n.dial}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		server.Close()
	})
	return base, n
}

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case n.dialed <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case conn := <-n.dialed:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error   { close(n.closed); return nil }
func (n *network) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (n *network) watch(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		n.open.Add(1)
		n.ever.Add(1)
	case http.StateClosed, http.StateHijacked:
		n.open.Add(-1)
	}
}

func TestTransport_DrainedResponsesReuseConnections(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"empty": 0, "short": 500, "up to what is drained": 64<<10 - 1} {
		bubble(t, name, func(t *testing.T) {
			var sent atomic.Int64
			base, network := serveInMemory(t, func(w http.ResponseWriter, _ *http.Request) {
				if sent.Add(1)%4 != 0 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				w.Write([]byte(strings.Repeat("x", size)))
			})
			client := &http.Client{Transport: patient(base)}
			for range 25 {
				call(t, client.Do, post(t, t.Context(), somewhere))
			}
			if sent.Load() != 100 || network.ever.Load() != 1 {
				t.Errorf("%d requests used %d connections, want 100 and 1", sent.Load(), network.ever.Load())
			}
		})
	}
}

func TestTransport_DiscardedResponsesLeakNoConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		base, network := serveInMemory(t, func(w http.ResponseWriter, r *http.Request) {
			switch sent.Add(1) % 4 {
			case 1: // more than is drained
				w.WriteHeader(http.StatusServiceUnavailable)
				w.Write([]byte(strings.Repeat("x", 1<<20)))
			case 2: // less than it says
				w.Header().Set("Content-Length", "1000")
				w.WriteHeader(http.StatusBadGateway)
				w.Write([]byte("x"))
				panic(http.ErrAbortHandler)
			case 3: // no end
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusConflict)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}
		})
		transport := patient(base)
		transport.AttemptTimeout = time.Second
		client := &http.Client{Transport: transport}
		for range 5 {
			call(t, client.Do, post(t, t.Context(), somewhere))
		}
		client.CloseIdleConnections()
		synctest.Wait()
		if open := network.open.Load(); open != 0 || sent.Load() != 20 {
			t.Errorf("%d connections are open after %d requests, want none after 20", open, sent.Load())
		}
	})
}
