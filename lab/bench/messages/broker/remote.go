package broker

import (
	"context"
	"errors"
	"io"
	"net"
	"net/rpc"
	"time"
)

// Server lets processes that get killed reach a Sink and a Source over a loopback connection. A
// session of the Source ends with its connection.
type Server struct {
	listener net.Listener
	sink     *Sink
	source   *Source
	confirm  time.Duration
}

// Serve starts one, in front of either. Each call of Publish is answered some time after its
// messages were taken, as by a broker that replicates them.
func Serve(sink *Sink, source *Source, confirm time.Duration) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener, sink: sink, source: source, confirm: confirm}
	go s.accept()
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops accepting connections. Open connections stay until their clients end.
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
		panic(err) // its methods are what this package has made them
	}
	server.ServeConn(conn)
}

// watched is a connection that ends its session. That package rpc has finished with it would be too
// late: it waits for calls under way, and Fetch waits for messages.
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

// Calls are the calls of one connection, as net/rpc serves them.
type Calls struct {
	sink    *Sink
	session *Session
	confirm time.Duration
}

// Publish is that of the Sink.
func (c *Calls) Publish(ids []string, _ *struct{}) error {
	err := c.sink.Publish(context.Background(), ids...)
	time.Sleep(c.confirm)
	return err
}

// Fetch is that of the Session. No deliveries: there will be none.
func (c *Calls) Fetch(max int, all *[]Delivery) (err error) {
	if *all, err = c.session.Fetch(context.Background(), max); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Ack is that of the Session.
func (c *Calls) Ack(tags []int64, _ *struct{}) error {
	return c.session.Ack(context.Background(), tags...)
}

// Nack is that of the Session.
func (c *Calls) Nack(tags []int64, _ *struct{}) error {
	return c.session.Nack(context.Background(), tags...)
}

// Client is a Sink and a Session in another process.
type Client struct{ rpc *rpc.Client }

// Dial connects to a Server.
func Dial(addr string) (*Client, error) {
	client, err := rpc.Dial("tcp", addr)
	return &Client{client}, err
}

// Publish is that of the Sink.
func (c *Client) Publish(ctx context.Context, ids ...string) error {
	return c.call(ctx, "Broker.Publish", ids, &struct{}{})
}

// Fetch is that of the Session.
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

// Ack is that of the Session.
func (c *Client) Ack(ctx context.Context, tags ...int64) error {
	return c.call(ctx, "Broker.Ack", tags, &struct{}{})
}

// Nack is that of the Session.
func (c *Client) Nack(ctx context.Context, tags ...int64) error {
	return c.call(ctx, "Broker.Nack", tags, &struct{}{})
}

// call returns when the answer is there, or ctx has ended; whether it was carried out is not known
// then.
func (c *Client) call(ctx context.Context, method string, in, out any) error {
	call := c.rpc.Go(method, in, out, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the connection, and with it the session.
func (c *Client) Close() { _ = c.rpc.Close() }
