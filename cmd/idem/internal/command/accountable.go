package command

import (
	"cmp"
	"context"

	"github.com/idem-go/idem"
)

// accountable has the flags of a command that makes a change which idem.audit records.
type accountable struct {
	Reason string `placeholder:"TEXT" help:"Why: idem audit shows it with the change."`
	Person string `placeholder:"NAME" help:"Who wants it, beside the role that logs in. Default: the variable IDEM_PERSON, or USER."`
	consent
}

// onRecord returns a context that carries the person and the reason. The library writes both to
// idem.audit in the transaction of the change.
func (a *accountable) onRecord(s *session) context.Context {
	person := cmp.Or(a.Person, s.Getenv("IDEM_PERSON"), s.Getenv("USER"))
	return idem.WithReason(idem.WithPerson(s.ctx, person), a.Reason)
}
