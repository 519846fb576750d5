package command

import (
	"cmp"
	"context"

	"github.com/idem-go/idem"
)

// accountable holds the flags of a change that idem.audit records: the consent, the reason and the
// person.
type accountable struct {
	Reason string `placeholder:"TEXT" help:"Why: idem audit shows it with the change."`
	Person string `placeholder:"NAME" help:"Who wants it, beside the role that logs in. Default: the variable IDEM_PERSON, or USER."`
	consent
}

// onRecord returns the context of the change, with the reason and the person for the audit entry.
func (a *accountable) onRecord(s *session) context.Context {
	person := cmp.Or(a.Person, s.Getenv("IDEM_PERSON"), s.Getenv("USER"))
	return idem.WithReason(idem.WithPerson(s.ctx, person), a.Reason)
}
