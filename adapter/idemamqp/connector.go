package idemamqp

import (
	"context"
	"errors"
	"net"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	dialLimit  = 30 * time.Second // including the handshake
	closeLimit = time.Second
)

// connector opens channels on one connection. It opens a connection if none is open.
type connector struct {
	url    string
	config amqp.Config
	conn   *amqp.Connection
	socket net.Conn
}

func newConnector(url string, config amqp.Config) *connector {
	config.Recovery = nil // if the AMQP client recovered a channel itself, lost confirmations would go unnoticed
	return &connector{url: url, config: config}
}

// channel opens a channel. It first opens a connection if none is open.
func (c *connector) channel(ctx context.Context) (*amqp.Channel, error) {
	if c.conn == nil || c.conn.IsClosed() {
		if err := c.dial(ctx); err != nil {
			return nil, err
		}
	}
	defer c.closeSocketAfter(ctx)()
	return c.conn.Channel()
}

func (c *connector) dial(ctx context.Context) (err error) {
	config, stop := c.config, func() bool { return true }
	config.Dial = func(network, addr string) (socket net.Conn, err error) {
		if c.config.Dial != nil {
			socket, err = c.config.Dial(network, addr)
		} else if socket, err = (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, network, addr); err == nil {
			err = socket.SetDeadline(time.Now().Add(dialLimit)) // the AMQP client clears the deadline after the handshake
		}
		if err != nil {
			return nil, err
		}
		c.socket = socket
		stop = c.closeSocketAfter(ctx)
		return socket, nil
	}
	conn, err := amqp.DialConfig(c.url, config)
	stop()
	var invalid *url.Error
	if errors.As(err, &invalid) { // the text of a *url.Error would reveal the password in the URL
		return invalid.Err
	}
	if err == nil {
		c.conn = conn
	}
	return err
}

// closeSocketAfter closes the socket when ctx ends, unless stop is called first. This also ends a
// write that blocks because the broker is short of memory and has stopped reading.
func (c *connector) closeSocketAfter(ctx context.Context) (stop func() bool) {
	socket := c.socket
	return context.AfterFunc(ctx, func() { socket.Close() })
}

// abort closes the connection without the closing handshake.
func (c *connector) abort() {
	c.socket.Close()
	c.close()
}

func (c *connector) close() error {
	if c.conn == nil || c.conn.IsClosed() {
		return nil
	}
	return c.conn.CloseDeadline(time.Now().Add(closeLimit))
}
