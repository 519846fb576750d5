package pgproxy

import (
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/idem-go/idem/internal/pgwire"
)

// fromServer decodes a server message and decides whether to forward it. If a trap has caught the
// statement to which m belongs, the whole answer is held from its first row on until it is
// complete, because only the completion decides whether the trap springs.
func (c *Conn) fromServer(m pgwire.Message) error {
	d := &c.down.draft
	if c.dialogue.trapped() {
		d.hold()
	}
	a, err := c.dialogue.hear(m)
	if err != nil {
		return err
	}
	if a.run != nil {
		event := Event{Stage: Answered, Statement: a.run.Statement, Tag: a.tag, Code: a.code}
		c.proxy.watchers.report(event)
		trap := c.sprung(a.run.trap, event)
		switch {
		case trap != nil && trap.code != "":
			if m, err = errorResponse(trap.code); err != nil {
				return err
			}
			event.Tag, event.Code = "", trap.code
			d.release()
			trap.report(event)
		case trap != nil:
			d.strike(&strike{trap, event})
			c.down.over = trap.action != Freeze
		}
		if c.down.over = c.down.over || a.run.lost; c.down.over {
			return nil
		}
	}
	if m.Kind() == pgwire.ReadyForQuery {
		d.release()
	}
	d.add(m)
	d.note(mark{answers: a.waits})
	return nil
}

// sprung returns the trap if the answer to its statement springs it, or nil.
func (c *Conn) sprung(trap *Trap, event Event) *Trap {
	if trap != nil && !trap.wants(event.Tag) {
		c.down.draft.release()
		trap.giveBack()
		return nil
	}
	return trap
}

func errorResponse(code string) (pgwire.Message, error) {
	return (&pgproto3.ErrorResponse{
		Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code, Message: "the proxy has replaced the answer",
	}).Encode(nil)
}
