package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
)

// relay is a network that carries requests to the first instance, one after the other, and loses the first answer.
type relay struct {
	url      string
	stage    *stage
	accident func() error // befalls the service while that answer is on its way; may be nil
	listener net.Listener
	answer   chan delivery
	ended    chan struct{}
}

// delivery is what the relay had in its hands when it cut the connection.
type delivery struct {
	bytes []byte
	err   error
}

func (s *stage) newRelay(ctx context.Context, accident func() error) (*relay, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{
		url:      "http://" + listener.Addr().String(),
		stage:    s,
		accident: accident,
		listener: listener,
		answer:   make(chan delivery, 1),
		ended:    make(chan struct{}),
	}
	go r.run(ctx)
	return r, nil
}

func (r *relay) run(ctx context.Context) {
	defer close(r.ended)
	lost, err := r.lose(ctx)
	r.answer <- delivery{lost, err}
	for err == nil {
		err = r.carry(ctx)
	}
}

// lose returns the bytes that were on their way to the client when the connection was cut.
func (r *relay) lose(ctx context.Context) (answer []byte, err error) {
	client, service, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer cut(client)
	defer cut(service)
	go io.Copy(service, client) // ends when either is cut
	answer = make([]byte, 4096)
	n, err := service.Read(answer)
	if err == nil && r.accident != nil {
		err = r.accident()
	}
	return answer[:n], err
}

// carry carries a request and its answer.
func (r *relay) carry(ctx context.Context) error {
	client, service, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	defer service.Close()
	go io.Copy(service, client)
	_, err = io.Copy(client, service)
	return err
}

// connect waits for a client, and connects it to the instance that is there at that moment.
func (r *relay) connect(ctx context.Context) (client, service net.Conn, err error) {
	client, err = r.listener.Accept()
	if err != nil {
		return nil, nil, err
	}
	service, err = new(net.Dialer).DialContext(ctx, "tcp", r.stage.first.Address())
	if err != nil {
		cut(client)
		return nil, nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		service.SetDeadline(deadline)
	}
	return client, service, nil
}

// cut closes a connection with a reset, as a box in the middle does that has lost its state.
func cut(conn net.Conn) {
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// lostCreated returns an error unless the answer that was lost told of an order.
func (r *relay) lostCreated(ctx context.Context) error {
	select {
	case lost := <-r.answer:
		if lost.err == nil && !strings.HasPrefix(string(lost.bytes), "HTTP/1.1 201") {
			return fmt.Errorf("the answer that was lost was %.40q, want a 201", lost.bytes)
		}
		return lost.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close returns when the relay no longer looks at the stage.
func (r *relay) close() {
	r.listener.Close()
	<-r.ended
}
