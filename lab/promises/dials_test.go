package promises_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/waiting"
)

// dials records the connections that a pool has opened, including those for a CancelRequest.
type dials struct {
	mu    sync.Mutex
	conns []*dialed
}

// on makes a pool use d to open its connections.
func (d *dials) on(config *pgxpool.Config) {
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c := &dialed{}
		d.mu.Lock()
		d.conns = append(d.conns, c)
		d.mu.Unlock()
		var err error
		c.Conn, err = dial(ctx, network, addr)
		return c, err
	}
}

func (d *dials) all() []*dialed {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*dialed{}, d.conns...)
}

// cancels returns the secret keys of all CancelRequests that were sent on connections that are
// closed.
func (d *dials) cancels() (secrets [][]byte) {
	const code, head = 80877102, 12
	for _, c := range d.all() {
		c.mu.Lock()
		if c.closed && len(c.first) > head && binary.BigEndian.Uint32(c.first[4:8]) == code {
			secrets = append(secrets, c.first[head:])
		}
		c.mu.Unlock()
	}
	return secrets
}

// wantNoneFor fails the test if a CancelRequest with this secret key was sent. Other CancelRequests
// are allowed: a probe that takes too long is canceled.
func (d *dials) wantNoneFor(t *testing.T, secret []byte) {
	t.Helper()
	if slices.ContainsFunc(d.cancels(), func(sent []byte) bool { return bytes.Equal(sent, secret) }) {
		t.Error("a request to cancel had the secret of the session")
	}
}

// open returns the number of open connections.
func (d *dials) open() (n int) {
	for _, c := range d.all() {
		c.mu.Lock()
		if !c.closed {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// dialed is a connection that records its use.
type dialed struct {
	net.Conn
	mu       sync.Mutex
	first    []byte // the first bytes that were written
	closed   bool
	deadline time.Time
}

func (c *dialed) Write(b []byte) (int, error) {
	c.mu.Lock()
	if c.first == nil {
		c.first = bytes.Clone(b)
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *dialed) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	return err
}

func (c *dialed) SetDeadline(deadline time.Time) error {
	c.mu.Lock()
	c.deadline = deadline
	c.mu.Unlock()
	return c.Conn.SetDeadline(deadline)
}

// lastDeadline returns the deadline that was set last.
func (c *dialed) lastDeadline() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline
}

// eventually waits for a state that nothing announces.
var eventually = waiting.Until
