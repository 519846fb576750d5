package pgproxy

import "github.com/jackc/pgx/v5/pgproto3"

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

// read returns the SQL of every statement that m asks to execute.
func (n *names) read(m message) ([]string, error) {
	switch m.kind() {
	case msgParse:
		err := n.parse.Decode(m.body())
		n.statements[n.parse.Name] = n.parse.Query
		return nil, err
	case msgBind:
		err := n.bind.Decode(m.body())
		n.portals[n.bind.DestinationPortal] = n.statements[n.bind.PreparedStatement]
		return nil, err
	case msgClose:
		err := n.close.Decode(m.body())
		n.forget()
		return nil, err
	case msgExecute:
		err := n.execute.Decode(m.body())
		return []string{n.portals[n.execute.Portal]}, err
	case msgQuery:
		err := n.query.Decode(m.body())
		return split(n.query.String), err
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

// fromClient decodes a client message and decides whether it is forwarded. While a BeforePipeline
// trap is armed, it holds a pipeline from its first message on and releases it with the last.
func (c *Conn) fromClient(m message) error {
	if !c.dialogue.isStarted() {
		c.up.draft.add(m)
		return nil
	}
	inPipeline := extends(m.kind())
	begins := !c.inPipeline && (inPipeline || m.kind() == msgQuery)
	c.inPipeline = inPipeline
	if begins && c.proxy.traps.beforePipeline() {
		c.up.draft.hold()
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

// extends reports whether a message of this kind leaves its pipeline open.
func extends(kind byte) bool {
	switch kind {
	case msgParse, msgBind, msgDescribe, msgExecute, msgClose:
		return true
	}
	return false
}

// decide forwards m unless a trap catches one of its statements. Before and BeforePipeline strike
// in front of m, AfterForward strikes behind it. An AfterAnswer trap stays with its statement, and
// fromServer decides about it.
func (c *Conn) decide(m message, runs []*run) {
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
		s.event.Stage = Forwarded
		victim.lost = trap.action != Freeze // the answer can arrive before the strike is carried out
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
	// The server never gets m, so traps that wait for other statements of m are free again.
	c.up.over = true
	(&request{runs: runs}).skip()
}

func (c *Conn) pass(m message, runs []*run) {
	c.dialogue.ask(m.kind(), runs)
	c.up.draft.add(m)
	for _, r := range runs {
		c.up.draft.note(mark{event: &Event{Stage: Forwarded, Statement: r.Statement}})
	}
}
