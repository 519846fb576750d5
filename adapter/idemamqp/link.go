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
	dialLimit  = 30 * time.Second // the handshake included
	closeLimit = time.Second
)

// link is a connection that is opened when it is needed.
type link struct {
	url    string
	config amqp.Config
	conn   *amqp.Connection
	socket net.Conn
}

func newLink(url string, config amqp.Config) *link {
	config.Recovery = nil // a channel that came back by itself would hide that its confirmations were lost
	return &link{url: url, config: config}
}

// channel opens a channel, and the connection if there is none.
func (l *link) channel(ctx context.Context) (*amqp.Channel, error) {
	if l.conn == nil || l.conn.IsClosed() {
		if err := l.dial(ctx); err != nil {
			return nil, err
		}
	}
	defer l.cutAfter(ctx)()
	return l.conn.Channel()
}

func (l *link) dial(ctx context.Context) (err error) {
	config, stop := l.config, func() bool { return true }
	config.Dial = func(network, addr string) (socket net.Conn, err error) {
		if l.config.Dial != nil {
			socket, err = l.config.Dial(network, addr)
		} else if socket, err = (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, network, addr); err == nil {
			err = socket.SetDeadline(time.Now().Add(dialLimit)) // cleared after the handshake
		}
		if err != nil {
			return nil, err
		}
		l.socket = socket
		stop = l.cutAfter(ctx)
		return socket, nil
	}
	conn, err := amqp.DialConfig(l.url, config)
	stop()
	var bad *url.Error
	if errors.As(err, &bad) { // its text has the password in it
		return bad.Err
	}
	if err == nil {
		l.conn = conn
	}
	return err
}

// cutAfter cuts the connection when ctx ends, whatever it is waiting for: a broker that is short of memory does not read.
func (l *link) cutAfter(ctx context.Context) (stop func() bool) {
	socket := l.socket
	return context.AfterFunc(ctx, func() { socket.Close() })
}

// cut ends the connection without another word.
func (l *link) cut() {
	l.socket.Close()
	l.close()
}

// close takes leave of the broker.
func (l *link) close() error {
	if l.conn == nil || l.conn.IsClosed() {
		return nil
	}
	return l.conn.CloseDeadline(time.Now().Add(closeLimit))
}
