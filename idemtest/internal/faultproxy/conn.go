package faultproxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// conn is one connection of a client, with its own to the server.
type conn struct {
	proxy      *Proxy
	client     net.Conn
	statements map[string]string // the text of prepared statements, by name

	mu        sync.Mutex
	over      bool
	server    net.Conn
	ready     bool // the server has accepted the client
	status    byte // of the transaction, as the server said last
	awaited   int  // answers that are still to come
	unended   bool // the client has not said where the flight ends
	swallow   bool // the answers of this flight are to be lost
	freezes   bool // and the connection is to freeze behind it
	frozen    bool // the server is gone, and the client is not told
	forgotten bool // of what was replaced, the client's messages up to the end of the statement are dropped
}

// cut breaks both sides.
func (c *conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	reset(c.client)
	if c.server != nil {
		c.server.Close() // the server reads what has reached it, and then the end
	}
}

// freeze takes the server away, and leaves the client without an answer.
func (c *conn) freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = true
	if c.server != nil {
		c.server.Close()
	}
}

// ends is told that the server is gone.
func (c *conn) ends() {
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

// isOpen reports whether a transaction is under way.
func (c *conn) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status == 'T' || c.status == 'E' || c.awaited > 0
}

func (c *conn) carry() {
	fromClient := bufio.NewReaderSize(c.client, 1<<16)
	if c.isFrozen() || !c.start(fromClient) {
		if c.isFrozen() {
			io.Copy(io.Discard, c.client)
		}
		return
	}
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		c.answers(bufio.NewReaderSize(c.server, 1<<16))
		c.ends()
	})
	c.asks(fromClient)
	c.cut()
}

// asks carries what the client sends, until one side is gone.
func (c *conn) asks(r *bufio.Reader) {
	var waiting []message // of the flight that is being read
	for {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		waiting = append(waiting, m)
		if r.Buffered() > 0 {
			continue
		}
		if !c.isFrozen() && !c.pass(waiting) && !c.isFrozen() {
			return
		}
		waiting = nil
	}
}

// pass sends on what has come together. It is false if the connection is over.
func (c *conn) pass(batch []message) bool {
	sql := c.note(batch)
	c.mu.Lock()
	begins := c.ready && c.awaited == 0 && !c.unended
	inTransaction := c.status == 'T'
	c.mu.Unlock()
	if begins && batch[0].kind != 'X' {
		fault, delay := c.proxy.begins(inTransaction, sql)
		time.Sleep(delay)
		if fault != nil && !c.suffer(fault) {
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

// conflict is what a server says to a transaction that it cannot serialize.
const conflict = `DO $$BEGIN RAISE EXCEPTION 'could not serialize access (by idemtest)' USING ERRCODE = '40001'; END$$`

// append adds a message to those that are to be sent, or what stands in for it.
func (c *conn) append(out []byte, m message) []byte {
	ends := m.kind == 'S' || m.kind == 'Q' || m.kind == 'F'
	if ends && c.ready {
		c.awaited++
	}
	c.unended = c.ready && !ends && (c.unended || c.awaited == 0)
	switch {
	case !c.forgotten:
		return append(out, m.raw...)
	case ends:
		c.forgotten = false
		return append(out, query(conflict)...)
	}
	return out
}

// suffer does a fault to the flight that begins. It is false if the connection is over by that.
func (c *conn) suffer(f *Fault) bool {
	if f.Kind.freezes() {
		c.proxy.found(c.isOpen())
		c.proxy.each(c, func(other *conn) {
			c.proxy.found(other.isOpen())
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
	case Lose, FreezeBehind:
		c.swallow, c.freezes = true, f.Kind == FreezeBehind
	case Conflict:
		c.forgotten = true
	}
	return true
}

// note remembers what is prepared, and returns the text of the first statement that says something.
func (c *conn) note(batch []message) string {
	first := ""
	for _, m := range batch {
		var sql string
		switch m.kind {
		case 'Q':
			sql, _ = cString(m.body())
		case 'P':
			name, rest := cString(m.body())
			sql, _ = cString(rest)
			c.statements[name] = sql
		case 'B':
			_, rest := cString(m.body())
			name, _ := cString(rest)
			sql = c.statements[name]
		}
		if first == "" || strings.HasPrefix(strings.ToLower(first), "begin") && sql != "" {
			first = sql
		}
	}
	return strings.Join(strings.Fields(first), " ")
}

// answers carries what the server sends, until one side is gone.
func (c *conn) answers(r *bufio.Reader) {
	var out []byte
	for {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		keep, last := c.hear(m)
		if keep && !c.isFrozen() {
			out = append(out, m.raw...)
		}
		if len(out) > 0 && (r.Buffered() == 0 || last || len(out) > 1<<16) {
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

// hear takes notice of an answer, and says whether the client gets it and whether the connection ends with it.
func (c *conn) hear(m message) (keep, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m.kind {
	case 'Z': // ready for the next
		if c.status = m.body()[0]; c.status == 'E' {
			c.proxy.isAborted()
		}
		if !c.ready {
			c.ready = true
			return true, false
		}
		c.awaited = max(0, c.awaited-1)
		last = c.swallow && c.awaited == 0
		c.frozen = c.frozen || last && c.freezes
		return !c.swallow, last
	case 'C':
		if tag, _ := cString(m.body()); tag == "COMMIT" {
			c.proxy.answeredCommit()
			if c.swallow {
				c.proxy.committed()
			}
		}
	case 'G', 'W': // the server waits for data, which the client sends when it has heard so
		return true, false
	}
	return !c.swallow, false
}
