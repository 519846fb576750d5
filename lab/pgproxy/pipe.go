package pgproxy

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// Direction is one of the two streams of a connection.
type Direction int

const (
	ToServer Direction = iota
	ToClient
)

func (d Direction) String() string {
	switch d {
	case ToServer:
		return "to server"
	case ToClient:
		return "to client"
	}
	return fmt.Sprintf("Direction(%d)", int(d))
}

// queueLen bounds what can be under way. When it is full, the proxy stops reading and TCP slows the sender down.
const queueLen = 1024

// pipe carries one direction of a connection. One goroutine reads and understands, the other one forwards: what has been
// read can be on its way for as long as the latency says, and more is read meanwhile.
type pipe struct {
	conn *Conn
	dir  Direction
	dst  net.Conn
	hear func(message) error // understands one message, adds it to the draft; nil: the stream is not ours to understand

	// The reader's.
	src   framer
	draft draft
	over  bool // nothing that is read will be forwarded

	queue chan parcel

	// The writer's.
	gate   gate
	alarm  alarm
	broken bool  // dst takes no more
	passed int64 // traps at offsets below have had their chance
	sent   atomic.Int64
}

func newPipe(c *Conn, dir Direction, src, dst net.Conn) *pipe {
	return &pipe{conn: c, dir: dir, dst: dst, src: framer{src: src}, draft: newDraft(), queue: make(chan parcel, queueLen)}
}

// read reads until the stream ends, and then lets the end take its way through the queue as well.
func (p *pipe) read() {
	defer close(p.queue)
	p.dispatch(time.Now()) // what was read before there was a pipe
	for {
		err := p.src.fill()
		now := time.Now()
		if err != nil {
			p.end(now)
			return
		}
		if p.over || p.gate.isMuted() {
			p.src.rest()
			continue
		}
		if err := p.understand(); err != nil {
			p.over = true
			p.fail(err)
			continue
		}
		p.dispatch(now)
	}
}

// understand works through all whole messages at once, before the first of them is forwarded: no answer can come in
// between, and statements that were sent in one go are seen as such.
func (p *pipe) understand() error {
	if p.hear == nil {
		p.draft.add(p.src.rest())
		return nil
	}
	for !p.over {
		m, ok, err := p.src.next()
		if err != nil || !ok {
			return err
		}
		if err := p.hear(m); err != nil {
			return err
		}
	}
	return nil
}

// end forwards what was read or held back when the stream ended, be it half a message.
func (p *pipe) end(now time.Time) {
	if p.over {
		return
	}
	p.draft.release()
	p.draft.add(p.src.rest())
	p.dispatch(now)
	p.push(parcel{}, now)
}

func (p *pipe) dispatch(now time.Time) {
	for _, x := range p.draft.take() {
		p.push(x, now)
	}
}

func (p *pipe) push(x parcel, now time.Time) {
	x.due = now.Add(p.conn.proxy.latency(p.dir))
	p.queue <- x
}

func (p *pipe) forward() {
	for x := range p.queue {
		if !p.gate.isMuted() {
			if err := p.alarm.until(x.due); err != nil {
				p.fail(err)
			}
		}
		p.send(x)
	}
	if p.gate.pass() {
		closeWrite(p.dst)
	}
}

// fail breaks a connection that the proxy cannot carry as it should, rather than to carry it in another way.
func (p *pipe) fail(err error) {
	p.conn.proxy.fail(fmt.Errorf("pgproxy: connection %d, %s: %w", p.conn.id, p.dir, err))
	p.conn.cut(Reset)
}

// send forwards a parcel, and strikes where a strike is due.
func (p *pipe) send(x parcel) {
	for p.gate.pass() {
		trap, n := p.conn.proxy.traps.within(p, len(x.data))
		if trap == nil {
			p.write(x)
			p.strike(x.strike)
			return
		}
		var first parcel
		first, x = x.split(n)
		p.write(first)
		p.strike(&strike{trap, Event{Statement: Statement{Conn: p.conn}}})
	}
	x.strike.abandon()
}

func (p *pipe) write(x parcel) {
	for _, m := range x.marks {
		p.conn.dialogue.answered(m.answers)
	}
	if len(x.data) > 0 && !p.broken {
		p.sent.Add(int64(len(x.data))) // first, so that whoever has got a byte finds it counted
		n, err := p.dst.Write(x.data)
		p.sent.Add(int64(n - len(x.data)))
		p.broken = err != nil
	}
	for _, m := range x.marks {
		if m.event != nil && !p.broken {
			p.conn.proxy.watchers.report(*m.event)
		}
	}
}

func (p *pipe) strike(s *strike) {
	if s == nil {
		return
	}
	if s.trap.action == Freeze {
		p.gate.freeze()
	} else {
		if p.dir == ToClient && s.trap.action == Reset {
			drain(p.dst)
		}
		p.conn.cut(s.trap.action)
	}
	s.trap.report(s.event)
}
