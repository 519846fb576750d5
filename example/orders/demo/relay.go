package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
)

// relay is a TCP proxy in front of the first instance. It carries one request after another and
// discards the first answer.
type relay struct {
	url   string
	stage *stage
	// accident, if not nil, is called after the relay has received the answer that it discards.
	accident func() error
	listener net.Listener
	answer   chan delivery
	ended    chan struct{}
}

// delivery is the answer that the relay has discarded.
type delivery struct {
	bytes []byte
	err   error
}

// newRelay starts a relay. The caller must call close.
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

// lose carries a request and cuts both connections after the start of its answer, which it returns.
func (r *relay) lose(ctx context.Context) (answer []byte, err error) {
	client, service, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer cut(client)
	defer cut(service)
	go io.Copy(service, client) // ends when a connection is cut
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

// connect accepts a connection of a client and connects to the first instance. The instance may
// have been restarted since the last call.
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

// cut closes a connection with a TCP reset, as a stateful network device does after it has lost its
// state.
func cut(conn net.Conn) {
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// lostCreated returns an error unless the discarded answer had status 201.
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

// close stops the relay and waits until its goroutine has ended.
func (r *relay) close() {
	r.listener.Close()
	<-r.ended
}
