package command

import (
	"cmp"
	"context"

	"github.com/idem-go/idem"
)

// accountable has the flags of a command that makes a change which idem.audit records.
type accountable struct {
	Reason string `placeholder:"TEXT" help:"Reason of the change, which idem audit shows."`
	Person string `placeholder:"NAME" help:"Person who makes the change, in addition to the database role. Default: the variable IDEM_PERSON, or USER."`
	consent
}

// withReason returns a context that carries the person and the reason. The library writes both to
// idem.audit in the transaction of the change.
func (a *accountable) withReason(s *session) context.Context {
	person := cmp.Or(a.Person, s.Getenv("IDEM_PERSON"), s.Getenv("USER"))
	return idem.WithReason(idem.WithPerson(s.ctx, person), a.Reason)
}
