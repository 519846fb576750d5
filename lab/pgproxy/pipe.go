package pgproxy

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/internal/pgwire"
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

// queueLen limits the parcels in flight. When the queue is full, the pipe stops reading, and TCP
// slows the sender down.
const queueLen = 1024

// pipe forwards one direction of a connection. One goroutine reads and decodes the stream, and
// another one writes it. While the writer waits until the latency of a parcel has passed, the
// reader reads on.
type pipe struct {
	conn *Conn
	dir  Direction
	dst  net.Conn
	// hear decodes one message and adds it to draft.
	hear func(pgwire.Message) error

	// Used only by the reader.
	src   *pgwire.Reader
	draft draft
	over  bool // nothing that is read later is forwarded

	queue chan parcel

	// Used by the writer. gate and sent are safe for other goroutines.
	gate   gate
	broken bool  // a write to dst failed
	passed int64 // offset below which AtByte traps have already been tried
	sent   atomic.Int64
}

func newPipe(c *Conn, dir Direction, src, dst net.Conn) *pipe {
	return &pipe{conn: c, dir: dir, dst: dst, src: pgwire.NewReader(src), draft: newDraft(), queue: make(chan parcel, queueLen), gate: gate{muted: c.muted}}
}

// read reads until the stream ends. It then passes the end of the stream through the queue, after
// everything that was read.
func (p *pipe) read() {
	defer close(p.queue)
	p.dispatch(time.Now()) // newConn has put the client's startup packet into draft
	for {
		m, err := p.src.Next()
		now := time.Now()
		if err != nil {
			p.end(err, now)
			return
		}
		if p.over || p.gate.isMuted() {
			continue
		}
		if err := p.understand(m); err != nil {
			p.over = true
			p.fail(err)
			continue
		}
		p.dispatch(now)
	}
}

// understand decodes m and all further messages that have already arrived, before any of them is
// forwarded. So no answer to m can arrive in between, and all statements that the client sent in
// one write are recorded together.
func (p *pipe) understand(m pgwire.Message) error {
	for {
		if err := p.hear(m); err != nil {
			return err
		}
		if p.over || !p.src.Ready() {
			return nil
		}
		var err error
		if m, err = p.src.Next(); err != nil {
			return err
		}
	}
}

// end forwards the rest of the stream when the stream ends. The rest includes bytes that are held
// back and an incomplete message.
func (p *pipe) end(err error, now time.Time) {
	if p.over || p.gate.isMuted() {
		return
	}
	if errors.Is(err, pgwire.ErrMalformed) {
		p.fail(err)
		return
	}
	p.draft.release()
	p.draft.add(p.src.Rest())
	p.dispatch(now)
	p.push(parcel{}, now)
}

func (p *pipe) dispatch(now time.Time) {
	for _, x := range p.draft.take() {
		p.push(x, now)
	}
}

func (p *pipe) push(x parcel, now time.Time) {
	x.due = now.Add(time.Duration(p.conn.proxy.latency.Load()))
	p.queue <- x
}

func (p *pipe) forward() {
	for x := range p.queue {
		if !p.gate.isMuted() {
			p.conn.await(x.due)
		}
		p.send(x)
	}
	if p.gate.pass() {
		pgwire.CloseWrite(p.dst)
	}
}

// fail records err for [Proxy.Close] and resets the connection, because the proxy can no longer
// forward it correctly.
func (p *pipe) fail(err error) {
	p.conn.proxy.fail(fmt.Errorf("pgproxy: connection %d, %s: %w", p.conn.id, p.dir, err))
	p.conn.cut(Reset)
}

// send forwards a parcel and springs the trap at its end. It also looks up AtByte traps, because
// only the writer knows the offset of a byte. It splits a parcel before the byte of such a trap.
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
		p.sent.Add(int64(len(x.data))) // before the write, so that every byte that has arrived is counted
		n, err := p.dst.Write(x.data)
		p.sent.Add(int64(n - len(x.data)))
		p.broken = err != nil
	}
}

func (p *pipe) strike(s *strike) {
	if s == nil {
		return
	}
	if s.trap.action == Freeze {
		p.gate.freeze()
	} else {
		p.conn.cut(s.trap.action)
	}
	s.trap.report(s.event)
}
