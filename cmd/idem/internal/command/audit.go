package command

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
)

type auditCommand struct {
	Since     span   `placeholder:"SPAN" help:"Changes in this time up to now."`
	Older     span   `placeholder:"SPAN" help:"Changes longer ago than this."`
	Act       string `enum:",evict,retry,cancel,resolve,redrive,drop,forget" default:"" placeholder:"ACT" help:"evict, retry, cancel, resolve, redrive, drop or forget."`
	Person    string `placeholder:"NAME" help:"Changes by this person, or this role."`
	Operation string `placeholder:"ID" help:"Changes of this operation."`
	Message   string `placeholder:"ID" help:"Changes of the dead letter of this message."`
	limitFlag
}

// auditTable shows who made a change, as which role, on what, and why.
var auditTable = table[record.AuditEntry]{
	"no changes by people",
	page.Columns("WHEN", "ACT", "OUTCOME", "BY", "ABOUT", "REASON"),
	func(_ *page.Page, a *record.AuditEntry) []string {
		by := page.Safe(a.Role)
		if a.Person != "" {
			by = page.Safe(a.Person) + " as " + by
		}
		return []string{page.Relative(a.At, a.Now), page.Safe(a.Act), page.Safe(a.Outcome), by, actedOn(a), page.Safe(a.Reason)}
	},
}

// Run lists what people did, the latest first. To continue the list, a person gives --older; there
// is no --after.
func (c *auditCommand) Run(s *session) error {
	if c.Operation != "" && new(pgtype.UUID).Scan(c.Operation) != nil {
		return usage("%q is not an operation id", page.Safe(c.Operation))
	}
	return showList(s, c.Limit, "acts", &auditTable, nil, func(ctx context.Context, tx pgx.Tx, limit int) ([]record.AuditEntry, error) {
		return record.AuditEntries(ctx, tx, record.AuditFilter{
			Since: time.Duration(c.Since), Older: time.Duration(c.Older), Act: c.Act, Person: c.Person, OperationID: c.Operation, MessageID: c.Message, Limit: limit,
		})
	})
}

// actedOn describes the object of a change: a dead letter, a relay, or an operation or record. The
// id of an operation is the execution id of its record, so operations and records are shown in the
// same way.
func actedOn(a *record.AuditEntry) string {
	switch {
	case a.MessageID != "":
		return a.Side + " " + deadLetterName(db.LetterName{Side: a.Side, Consumer: a.Consumer, Source: a.Source, ID: a.MessageID})
	case a.Act == string(db.Forget):
		return "relay " + page.Safe(a.Consumer)
	case a.Step != "":
		return "operation " + a.OperationID + " at step " + page.Safe(a.Step)
	}
	return fmt.Sprintf("operation %s (key %s in scope %s)", a.OperationID, page.Safe(a.Key), page.Safe(a.Scope))
}
