package pgproxy

import (
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/idem-go/idem/internal/pgwire"
)

// names maps the names of a client's prepared statements and portals to their SQL. The message
// structs are reused to avoid allocations.
type names struct {
	statements, portals map[string]string
	parse               pgproto3.Parse
	bind                pgproto3.Bind
	execute             pgproto3.Execute
	close               pgproto3.Close
	query               pgproto3.Query
}

func newNames() names {
	return names{statements: make(map[string]string), portals: make(map[string]string)}
}

// read returns the SQL of every statement that the message m asks the server to execute.
func (n *names) read(m pgwire.Message) ([]string, error) {
	switch m.Kind() {
	case pgwire.Parse:
		err := n.parse.Decode(m.Body())
		n.statements[n.parse.Name] = n.parse.Query
		return nil, err
	case pgwire.Bind:
		err := n.bind.Decode(m.Body())
		n.portals[n.bind.DestinationPortal] = n.statements[n.bind.PreparedStatement]
		return nil, err
	case pgwire.Close:
		err := n.close.Decode(m.Body())
		n.forget()
		return nil, err
	case pgwire.Execute:
		err := n.execute.Decode(m.Body())
		return []string{n.portals[n.execute.Portal]}, err
	case pgwire.Query:
		err := n.query.Decode(m.Body())
		return Split(n.query.String), err
	}
	return nil, nil
}

func (n *names) forget() {
	if n.close.ObjectType == 'S' {
		delete(n.statements, n.close.Name)
	} else {
		delete(n.portals, n.close.Name)
	}
}

// fromClient decodes a client message and decides whether to forward it. While a BeforePipeline
// trap is armed, it holds each pipeline from the first message on, and releases the whole pipeline
// with the last message.
func (c *Conn) fromClient(m pgwire.Message) error {
	if !c.dialogue.isStarted() {
		c.up.draft.add(m)
		return nil
	}
	inPipeline := extends(m.Kind())
	begins := !c.inPipeline && (inPipeline || m.Kind() == pgwire.Query)
	c.inPipeline = inPipeline
	if begins && c.proxy.traps.beforePipeline() {
		c.up.draft.hold()
	}
	m, err := c.rewritten(m)
	if err != nil {
		return err
	}
	texts, err := c.names.read(m)
	if err != nil {
		return err
	}
	runs := make([]*run, len(texts))
	for i, sql := range texts {
		runs[i] = &run{Statement: Statement{Conn: c, SQL: sql}}
		c.proxy.watchers.report(Event{Stage: Seen, Statement: runs[i].Statement})
	}
	c.decide(m, runs)
	if !inPipeline {
		c.up.draft.release()
	}
	return nil
}

// rewritten returns m with its SQL replaced by the SQL that the server gets.
func (c *Conn) rewritten(m pgwire.Message) (pgwire.Message, error) {
	rewrite := c.proxy.rewrite
	if rewrite == nil {
		return m, nil
	}
	switch m.Kind() {
	case pgwire.Parse:
		parse := &c.names.parse
		if err := parse.Decode(m.Body()); err != nil {
			return nil, err
		}
		parse.Query = rewrite(parse.Query)
		return parse.Encode(nil)
	case pgwire.Query:
		query := &c.names.query
		if err := query.Decode(m.Body()); err != nil {
			return nil, err
		}
		query.String = rewrite(query.String)
		return query.Encode(nil)
	}
	return m, nil
}

// extends reports whether the pipeline continues after a message of this kind.
func extends(kind byte) bool {
	switch kind {
	case pgwire.Parse, pgwire.Bind, pgwire.Describe, pgwire.Execute, pgwire.Close:
		return true
	}
	return false
}

// decide forwards m unless a trap catches one of its statements. Before and BeforePipeline traps
// act in front of m, and AfterForward traps act behind it. An AfterAnswer trap stays attached to
// its statement, and fromServer decides about it.
func (c *Conn) decide(m pgwire.Message, runs []*run) {
	d := &c.up.draft
	trap, victim := c.proxy.traps.choose(runs, d.held >= 0)
	if trap == nil {
		c.pass(m, runs)
		return
	}
	s := &strike{trap, Event{Stage: Seen, Statement: victim.Statement}}
	if trap.point.place != beforePipeline {
		d.release()
	}
	if trap.point.place == afterForward {
		victim.lost = trap.action != Freeze // drop an answer that arrives before the trap has acted
		c.pass(m, runs)
		d.strike(s)
		c.up.over = trap.action != Freeze
		return
	}
	d.strike(s)
	if trap.action == Freeze {
		c.pass(m, runs)
		return
	}
	// The server never gets m, so traps that were attached to other statements of m can catch
	// again.
	c.up.over = true
	(&request{runs: runs}).skip()
}

func (c *Conn) pass(m pgwire.Message, runs []*run) {
	c.dialogue.ask(m.Kind(), runs)
	c.up.draft.add(m)
}
