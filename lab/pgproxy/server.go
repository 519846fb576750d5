package pgproxy

// fromServer decodes a server message and decides whether it is forwarded. If a trap has caught the
// statement that m belongs to, the whole answer from its first row on is held until it is complete.
// Only then is it known whether the trap springs.
func (c *Conn) fromServer(m message) error {
	d := &c.down.draft
	if c.dialogue.trapped() {
		d.hold()
	}
	a, err := c.dialogue.hear(m)
	if err != nil {
		return err
	}
	reached := mark{answers: a.waits}
	if a.run != nil {
		event := Event{Stage: Answered, Statement: a.run.Statement, Tag: a.tag, Code: a.code}
		c.proxy.watchers.report(event)
		if c.down.over = a.run.lost || c.springs(a.run.trap, event); c.down.over {
			return nil
		}
		event.Stage = Delivered
		reached.event = &event
	}
	if m.kind() == msgReadyForQuery {
		d.release()
	}
	d.add(m)
	d.note(reached)
	return nil
}

// springs decides what happens to a statement that has been answered. It reports whether nothing
// more is forwarded to the client.
func (c *Conn) springs(trap *Trap, event Event) bool {
	if trap == nil {
		return false
	}
	if !trap.wants(event.Tag) {
		c.down.draft.release()
		trap.giveBack()
		return false
	}
	c.down.draft.strike(&strike{trap, event})
	return trap.action != Freeze
}
