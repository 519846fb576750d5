package demo

import (
	"context"
	"io"
	"net"
	"strings"
)

// relay is a network that carries one request to the service, and loses the answer.
type relay struct {
	url      string
	target   string
	listener net.Listener
	answer   chan delivery
}

// delivery is what the relay had in its hands when it cut the connection.
type delivery struct {
	bytes []byte
	err   error
}

func newRelay(ctx context.Context, url string) (*relay, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{
		url:      "http://" + listener.Addr().String(),
		target:   strings.TrimPrefix(url, "http://"),
		listener: listener,
		answer:   make(chan delivery, 1),
	}
	go func() {
		lost, err := r.carry(ctx)
		r.answer <- delivery{lost, err}
	}()
	return r, nil
}

// carry returns the bytes that were on their way to the client when the connection was cut.
func (r *relay) carry(ctx context.Context) ([]byte, error) {
	client, err := r.listener.Accept()
	if err != nil {
		return nil, err
	}
	defer cut(client)
	service, err := new(net.Dialer).DialContext(ctx, "tcp", r.target)
	if err != nil {
		return nil, err
	}
	defer cut(service)
	if deadline, ok := ctx.Deadline(); ok {
		service.SetDeadline(deadline)
	}
	go io.Copy(service, client) // ends when either is cut
	answer := make([]byte, 4096)
	n, err := service.Read(answer)
	return answer[:n], err
}

// cut closes a connection with a reset, as a box in the middle does that has lost its state.
func cut(conn net.Conn) {
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// lost returns the beginning of the answer that was lost.
func (r *relay) lost(ctx context.Context) ([]byte, error) {
	select {
	case lost := <-r.answer:
		return lost.bytes, lost.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *relay) close() { r.listener.Close() }
