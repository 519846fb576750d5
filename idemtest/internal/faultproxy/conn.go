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

// conn pairs a client's connection to the proxy with the proxy's own connection to the server. Two
// goroutines copy messages: one runs clientToServer, one serverToClient.
type conn struct {
	proxy      *Proxy
	client     net.Conn
	statements map[string]string // SQL of prepared statements, by name

	mu sync.Mutex
	// closed says that cut has closed both connections.
	closed      bool
	server      net.Conn
	ready       bool // the server has sent its first ReadyForQuery
	status      byte // transaction status of the last ReadyForQuery: I, T or E
	pending     int  // number of ReadyForQuery messages that the server still has to send
	midFlight   bool // the client has sent a part of a flight (see the package comment) and not its end
	loseAnswers bool // drop the server's answers to the current flight
	freezes     bool // freeze the connection once the server has answered the current flight
	frozen      bool // the connection to the server is closed, the connection to the client stays open
	// replacing says to drop the client's messages up to the end of the current statement, and to send
	// the SQL in the constant conflict instead.
	replacing bool
}

// cut closes the connection to the client and the connection to the server.
func (c *conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	pgwire.Reset(c.client)
	if c.server != nil {
		c.server.Close() // unlike a reset, Close lets the server read what the proxy has sent
	}
}

// freeze closes the connection to the server. The connection to the client stays open, but the
// client gets no answers.
func (c *conn) freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = true
	if c.server != nil {
		c.server.Close()
	}
}

// serverEnded closes the connection to the client after the server has closed its side. On a frozen
// connection, the client's side stays open.
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

// isOpen reports whether a transaction or a statement is in progress on the connection.
func (c *conn) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status == 'T' || c.status == 'E' || c.pending > 0
}

const dialLimit = 30 * time.Second

// serve copies messages until the client or the server closes its connection. If the connection was
// frozen from the start, serve reads from the client and never answers.
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

// start connects to the server and forwards the client's first message. It returns true if more
// messages follow. It returns false after a CancelRequest, which has no answer, or if a connection
// failed.
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
		io.Copy(io.Discard, server) // wait until the server closes its side, which means that it has read the request
	}
	return !cancel
}

// connected stores the new connection to the server. If the client's connection was cut in the
// meantime, connected closes the new connection and returns false.
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

// clientToServer copies messages from the client to the server until one of them closes its
// connection. It sends all buffered messages together, because pgx writes a whole flight at once.
// On a frozen connection it reads messages and discards them.
func (c *conn) clientToServer(r *pgwire.Reader) {
	var waiting []pgwire.Message // messages that were read and not yet sent to the server
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
// a fault or a delay applies to it. A flight begins when the client has completed its previous
// flight and the server has answered it. forward returns false if the connection is closed or must
// no longer be used.
func (c *conn) forward(batch []pgwire.Message) bool {
	sql := c.noteSQL(batch)
	c.mu.Lock()
	begins := c.ready && c.pending == 0 && !c.midFlight
	inTransaction := c.status == 'T'
	c.mu.Unlock()
	// Terminate does not count as a flight: with it, the client only closes the connection.
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

// conflict is the SQL that the proxy sends in place of the client's statement. It makes the real
// server return the error, so that the server also aborts the transaction.
const conflict = `DO $$BEGIN RAISE EXCEPTION 'could not serialize access (by idemtest)' USING ERRCODE = '40001'; END$$`

// append appends the message m, or a replacement for m, to out, and counts the answers that the
// server will send. A Sync, Query or FunctionCall message ends a statement. After the fault
// Conflict, append replaces all messages of the next statement with the SQL in the constant
// conflict.
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

// inject injects f into the flight that is about to be sent. It returns false if the flight must
// not reach the server.
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
// batch that is not BEGIN, with white space collapsed. If there is no such statement, it returns
// BEGIN. Query and Parse messages contain SQL. A Bind message contains only the name of a prepared
// statement, so noteSQL looks up its SQL.
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

// serverToClient copies messages from the server to the client until one of them closes its
// connection. It passes on all buffered messages in one write. If a fault says to lose the answers
// to a flight, serverToClient drops these answers and then closes the connection to the server.
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

// observe updates the state of the connection from a message of the server. keep reports whether
// the client gets the message. last reports whether to close the connection to the server after the
// message.
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
		// The client waits for this message before it sends COPY data. If the proxy dropped the
		// message, the flight would never end.
		return true, false
	}
	return !c.loseAnswers, false
}
