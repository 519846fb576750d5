package faultproxy

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/pgwire"
)

// conn is one connection of a client with the proxy, and its connection with the server. Two
// goroutines serve it, clientToServer and serverToClient.
type conn struct {
	proxy      *Proxy
	client     net.Conn
	statements map[string]string // SQL of prepared statements, by name

	mu sync.Mutex
	// closed: cut has closed the connection.
	closed      bool
	server      net.Conn
	ready       bool // the server has sent its first ReadyForQuery
	status      byte // transaction status of the last ReadyForQuery: I, T or E
	pending     int  // number of answers that the server still has to send
	midFlight   bool // the last message sent does not end its flight
	loseAnswers bool // do not pass the answers of this flight to the client
	freezes     bool // freeze the connection after the answers of this flight
	frozen      bool // the server side is closed, the client side stays open
	// replacing: drop the messages of the client up to the end of the statement, which conflict
	// replaces.
	replacing bool
}

// cut closes both sides.
func (c *conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	pgwire.Reset(c.client)
	if c.server != nil {
		c.server.Close() // the server still reads what was sent before
	}
}

// freeze closes the server side and leaves the client without an answer.
func (c *conn) freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = true
	if c.server != nil {
		c.server.Close()
	}
}

// serverEnded closes the client side after the server side has ended, unless the connection is
// frozen.
func (c *conn) serverEnded() {
	c.mu.Lock()
	frozen := c.frozen
	c.mu.Unlock()
	if !frozen {
		c.cut()
	}
}

func (c *conn) isFrozen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frozen
}

// isOpen reports whether a transaction or a statement is in progress.
func (c *conn) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status == 'T' || c.status == 'E' || c.pending > 0
}

const dialLimit = 30 * time.Second

// serve serves the connection until one side ends. A connection that is frozen from the start is
// read and never answered.
func (c *conn) serve() {
	if c.isFrozen() || !c.start() {
		if c.isFrozen() {
			io.Copy(io.Discard, c.client)
		}
		return
	}
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		c.serverToClient(pgwire.NewReader(c.server))
		c.serverEnded()
	})
	c.clientToServer(pgwire.NewReader(c.client))
	c.cut()
}

// start connects to the server and forwards the startup message. It forwards a CancelRequest too,
// which has no answer. It returns false if the connection has ended.
func (c *conn) start() bool {
	first, cancel, err := pgwire.Greet(c.client)
	if err != nil {
		return false
	}
	ctx, stop := context.WithTimeout(c.proxy.dialing, dialLimit)
	defer stop()
	server, err := pgwire.Dial(ctx, c.proxy.server)
	if err != nil {
		c.client.Write(refusal(err))
		return false
	}
	if !c.connected(server) {
		return false
	}
	if _, err := server.Write(first); err != nil {
		return false
	}
	if cancel {
		io.Copy(io.Discard, server) // wait until the server has read the request
	}
	return !cancel
}

// connected stores the connection to the server. It returns false, and closes server, if the
// client's connection was cut meanwhile.
func (c *conn) connected(server net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		server.Close()
		return false
	}
	c.server = server
	return true
}

// clientToServer copies messages from the client to the server until one side ends. It reads until
// nothing more is buffered and passes these messages on together, because pgx writes a flight at
// once. On a frozen connection it reads and discards.
func (c *conn) clientToServer(r *pgwire.Reader) {
	var waiting []pgwire.Message // messages read and not yet passed on
	for {
		m, err := r.Next()
		if err != nil {
			return
		}
		waiting = append(waiting, slices.Clone(m))
		if r.Buffered() {
			continue
		}
		if !c.isFrozen() && !c.forward(waiting) && !c.isFrozen() {
			return
		}
		waiting = nil
	}
}

// forward sends batch to the server. If batch begins a flight, forward first asks the proxy whether
// a fault or a delay applies to it. A flight begins when the server owes no answer and the previous
// flight was complete. forward returns false if the connection has ended or must not be used any
// more.
func (c *conn) forward(batch []pgwire.Message) bool {
	sql := c.noteSQL(batch)
	c.mu.Lock()
	begins := c.ready && c.pending == 0 && !c.midFlight
	inTransaction := c.status == 'T'
	c.mu.Unlock()
	// With Terminate the client closes the connection, which is no flight.
	if begins && batch[0].Kind() != pgwire.Terminate {
		fault, delay := c.proxy.beginFlight(inTransaction, sql)
		time.Sleep(delay)
		if fault != nil && !c.inject(fault) {
			return false
		}
	}
	c.mu.Lock()
	var out []byte
	for _, m := range batch {
		out = c.append(out, m)
	}
	c.mu.Unlock()
	_, err := c.server.Write(out)
	return err == nil
}

// conflict is the statement that the proxy sends instead of that of the client. The error comes
// from the real server, so that the server aborts the transaction too.
const conflict = `DO $$BEGIN RAISE EXCEPTION 'could not serialize access (by idemtest)' USING ERRCODE = '40001'; END$$`

// append appends m or its replacement to out, and counts the answers that the server will send. A
// Sync, Query or FunctionCall message ends a statement. After the fault Conflict, append replaces
// all messages of the next statement with the query conflict.
func (c *conn) append(out []byte, m pgwire.Message) []byte {
	ends := m.Kind() == pgwire.Sync || m.Kind() == pgwire.Query || m.Kind() == pgwire.FunctionCall
	if ends && c.ready {
		c.pending++
	}
	c.midFlight = c.ready && !ends && (c.midFlight || c.pending == 0)
	switch {
	case !c.replacing:
		return append(out, m...)
	case ends:
		c.replacing = false
		return append(out, query(conflict)...)
	}
	return out
}

// inject injects f into the flight that begins. It returns false if the flight must not be sent.
func (c *conn) inject(f *Fault) bool {
	if f.Kind.freezes() {
		c.proxy.recordOpen(c.isOpen())
		c.proxy.each(c, func(other *conn) {
			c.proxy.recordOpen(other.isOpen())
			other.freeze()
		})
	}
	if f.Kind == Outage {
		c.proxy.each(c, (*conn).cut)
	}
	if f.Then != nil {
		f.Then()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f.Kind {
	case Cut, Outage:
		return false
	case Freeze:
		c.frozen = true
		c.server.Close()
		return false
	case Lose, FreezeAfter:
		c.loseAnswers, c.freezes = true, f.Kind == FreezeAfter
	case Conflict:
		c.replacing = true
	}
	return true
}

// noteSQL stores the SQL of the statements that batch prepares. It returns the first statement of
// batch other than BEGIN, or BEGIN if there is no other, with white space collapsed. The message
// kinds are Query (Q), Parse (P) and Bind (B).
func (c *conn) noteSQL(batch []pgwire.Message) string {
	first := ""
	for _, m := range batch {
		var sql string
		switch m.Kind() {
		case pgwire.Query:
			sql, _ = cString(m.Body())
		case pgwire.Parse:
			name, rest := cString(m.Body())
			sql, _ = cString(rest)
			c.statements[name] = sql
		case pgwire.Bind:
			_, rest := cString(m.Body())
			name, _ := cString(rest)
			sql = c.statements[name]
		}
		if first == "" || strings.HasPrefix(strings.ToLower(first), "begin") && sql != "" {
			first = sql
		}
	}
	return strings.Join(strings.Fields(first), " ")
}

// serverToClient copies messages from the server to the client until one side ends. It writes all
// messages that are buffered at once. If the fault of a flight is to lose the answers,
// serverToClient drops them, and closes the server side after the last one.
func (c *conn) serverToClient(r *pgwire.Reader) {
	var out []byte
	for {
		m, err := r.Next()
		if err != nil {
			return
		}
		keep, last := c.observe(m)
		if keep && !c.isFrozen() {
			out = append(out, m...)
		}
		if len(out) > 0 && (!r.Buffered() || last || len(out) > 1<<16) {
			if _, err := c.client.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
		if last {
			c.server.Close()
			return
		}
	}
}

// observe updates the state of the connection from a message of the server. keep says whether the
// client gets the message, last whether the connection ends after it.
func (c *conn) observe(m pgwire.Message) (keep, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m.Kind() {
	case pgwire.ReadyForQuery:
		if c.status = m.Body()[0]; c.status == 'E' {
			c.proxy.recordAborted()
		}
		if !c.ready {
			c.ready = true
			return true, false
		}
		c.pending = max(0, c.pending-1)
		last = c.loseAnswers && c.pending == 0
		c.frozen = c.frozen || last && c.freezes
		return !c.loseAnswers, last
	case pgwire.CommandComplete:
		if tag, _ := cString(m.Body()); tag == "COMMIT" {
			c.proxy.recordCommit(c.loseAnswers)
		}
	case pgwire.CopyInResponse, pgwire.CopyBothResponse:
		// The client must see it, or it would not send its data and the flight would never end.
		return true, false
	}
	return !c.loseAnswers, false
}
