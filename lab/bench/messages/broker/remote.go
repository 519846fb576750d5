package broker

import (
	"context"
	"errors"
	"io"
	"net"
	"net/rpc"
	"time"
)

// Server gives worker processes access to a Sink and a Source over a loopback connection. Each
// connection has its own session with the Source, which ends with the connection.
type Server struct {
	listener net.Listener
	sink     *Sink
	source   *Source
	confirm  time.Duration
}

// Serve starts a Server for a Sink, a Source or both. The Server delays the answer to each Publish
// by the time confirm, as if the broker replicated its messages.
func Serve(sink *Sink, source *Source, confirm time.Duration) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener, sink: sink, source: source, confirm: confirm}
	go s.accept()
	return s, nil
}

// Addr returns the address of the server.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops accepting connections. Clients keep their open connections.
func (s *Server) Close() error { return s.listener.Close() }

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		go s.serve(conn)
	}
}

func (s *Server) serve(conn net.Conn) {
	calls := &Calls{sink: s.sink, confirm: s.confirm}
	if s.source != nil {
		calls.session = s.source.Open()
		conn = &watched{conn, calls.session}
	}
	server := rpc.NewServer()
	if err := server.RegisterName("Broker", calls); err != nil {
		panic(err) // cannot happen: the methods of Calls are valid RPC methods
	}
	server.ServeConn(conn)
}

// watched is a connection that closes its session as soon as a read fails. Closing the session
// after ServeConn would be too late, because ServeConn waits for calls in progress, and a Fetch may
// wait for messages.
type watched struct {
	net.Conn
	session *Session
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.session.Close()
	}
	return n, err
}

// Calls has the RPC methods that clients call over one connection.
type Calls struct {
	sink    *Sink
	session *Session
	confirm time.Duration
}

// Publish calls Sink.Publish.
func (c *Calls) Publish(ids []string, _ *struct{}) error {
	err := c.sink.Publish(context.Background(), ids...)
	time.Sleep(c.confirm)
	return err
}

// Fetch calls Session.Fetch. It returns an empty result instead of io.EOF, because net/rpc cannot
// transmit this error value.
func (c *Calls) Fetch(max int, all *[]Delivery) (err error) {
	if *all, err = c.session.Fetch(context.Background(), max); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Settle calls Session.Settle. tags[0] contains the acknowledged deliveries and tags[1] the
// rejected deliveries.
func (c *Calls) Settle(tags [2][]int64, _ *struct{}) error {
	return c.session.Settle(context.Background(), tags[0], tags[1])
}

// Client lets a worker process use the Sink and a Session in the process of the Server.
type Client struct{ rpc *rpc.Client }

// Dial connects to a Server.
func Dial(addr string) (*Client, error) {
	client, err := rpc.Dial("tcp", addr)
	return &Client{client}, err
}

// Publish calls Sink.Publish.
func (c *Client) Publish(ctx context.Context, ids ...string) error {
	return c.call(ctx, "Broker.Publish", ids, &struct{}{})
}

// Fetch calls Session.Fetch.
func (c *Client) Fetch(ctx context.Context, max int) ([]Delivery, error) {
	var all []Delivery
	if err := c.call(ctx, "Broker.Fetch", max, &all); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, io.EOF
	}
	return all, nil
}

// Settle calls Session.Settle.
func (c *Client) Settle(ctx context.Context, acked, rejected []int64) error {
	return c.call(ctx, "Broker.Settle", [2][]int64{acked, rejected}, &struct{}{})
}

// call calls an RPC method and waits for the answer, or for the end of ctx. After the end of ctx,
// the server may still execute the method.
func (c *Client) call(ctx context.Context, method string, in, out any) error {
	call := c.rpc.Go(method, in, out, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes the connection, which also ends its session with the Source.
func (c *Client) Close() { _ = c.rpc.Close() }
