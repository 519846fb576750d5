package txn

import (
	"context"
	"net"
	"sync"
	"time"
)

// answerDeadline interrupts reads and writes on a socket some time after a context has ended. Until
// the context ends it costs no goroutine and no timer.
type answerDeadline struct {
	conn      net.Conn
	limit     time.Duration // between the end of the context and the interruption
	unwatch   func() bool   // stops watching the context
	mu        sync.Mutex
	timer     *time.Timer
	began     time.Time // when the context ended; zero before
	stopped   bool
	expired   bool // the socket was interrupted
	readLimit bool // limitReads has set a deadline
}

// newAnswerDeadline returns a deadline that interrupts conn when the duration limit has passed
// since the end of ctx.
func newAnswerDeadline(ctx context.Context, limit time.Duration, conn net.Conn) *answerDeadline {
	d := &answerDeadline{conn: conn, limit: limit}
	d.unwatch = context.AfterFunc(ctx, d.begin)
	return d
}

// startAnswerDeadline returns a deadline that interrupts conn when the duration limit has passed
// from now on. It watches no context.
func startAnswerDeadline(limit time.Duration, conn net.Conn) *answerDeadline {
	d := &answerDeadline{conn: conn, limit: limit, unwatch: func() bool { return false }}
	d.begin()
	return d
}

func (d *answerDeadline) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stopped {
		d.began = time.Now()
		d.timer = time.AfterFunc(d.limit, d.interrupt)
	}
}

func (d *answerDeadline) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stopped {
		d.expired = true
		_ = d.conn.SetDeadline(time.Unix(1, 0))
	}
}

// limitReads makes reads of the socket fail after the duration pause, even if the context has not
// ended. If the socket was already interrupted, limitReads does nothing.
func (d *answerDeadline) limitReads(pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.expired {
		d.readLimit = d.conn.SetReadDeadline(time.Now().Add(pause)) == nil
	}
}

// unlimitReads removes the deadline of limitReads, unless an interruption has replaced that
// deadline.
func (d *answerDeadline) unlimitReads() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.readLimit && !d.expired {
		_ = d.conn.SetReadDeadline(time.Time{})
	}
	d.readLimit = false
}

// stop clears the deadlines of the socket and reports whether the socket was interrupted. It may be
// called more than once.
func (d *answerDeadline) stop() (expired bool) {
	d.unwatch()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	if (d.expired || d.readLimit) && !d.stopped {
		_ = d.conn.SetDeadline(time.Time{})
	}
	d.stopped = true
	return d.expired
}

// remaining returns how much of the limit is left.
func (d *answerDeadline) remaining() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.began.IsZero() {
		return d.limit
	}
	return d.limit - time.Since(d.began)
}
