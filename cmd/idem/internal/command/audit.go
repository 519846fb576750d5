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
	Since     span   `placeholder:"SPAN" help:"Done in this time up to now."`
	Older     span   `placeholder:"SPAN" help:"Done longer ago than this."`
	Act       string `enum:",evict,retry,cancel,resolve,redrive,drop,forget" default:"" placeholder:"ACT" help:"evict, retry, cancel, resolve, redrive, drop or forget."`
	Person    string `placeholder:"NAME" help:"By this person, or this role."`
	Operation string `placeholder:"ID" help:"About this operation id."`
	Message   string `placeholder:"ID" help:"About the dead letter of this message."`
	Limit     int    `default:"50" help:"How many at most, up to 10000. Default: ${default}."`
}

func (auditCommand) Help() string {
	return `Every change that a person makes to a record, an operation, a dead letter or a relay, by this command or by a program, is stored in the
transaction of the change. A change that was refused is not listed. BY is the named person and the database role. The latest come first. A purge deletes them after a year.

Example: idem audit --since 7d --act cancel`
}

// Run reads one act more than --limit, to know whether there are more.
func (c *auditCommand) Run(s *session) error {
	if c.Limit < 1 || c.Limit > 10000 {
		return usage("--limit is between 1 and 10000: narrow it down with --since and --older")
	}
	if c.Operation != "" && new(pgtype.UUID).Scan(c.Operation) != nil {
		return usage("%q is no operation id", page.Safe(c.Operation))
	}
	var found []record.Act
	err := s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		found, err = record.Acts(ctx, tx, record.ActFilter{
			Since: time.Duration(c.Since), Older: time.Duration(c.Older), Act: c.Act, Person: c.Person, OperationID: c.Operation, MessageID: c.Message, Limit: c.Limit + 1,
		})
		return err
	})
	if err != nil {
		return err
	}
	shown := shownAudit{Acts: []shownAct{}, More: len(found) > c.Limit}
	found = found[:min(len(found), c.Limit)]
	for i := range found {
		shown.Acts = append(shown.Acts, newShownAct(&found[i]))
	}
	return s.show(shown, func(p *page.Page) { tellActs(p, found, shown.More) })
}

// shownAudit is the JSON document of idem audit.
type shownAudit struct {
	Acts []shownAct `json:"acts"`
	More bool       `json:"more"`
}

type shownAct struct {
	At          time.Time `json:"at"`
	Act         string    `json:"act"`
	Outcome     string    `json:"outcome"`
	Role        string    `json:"role"`
	Person      string    `json:"person,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	OperationID string    `json:"operation_id,omitempty"`
	Step        string    `json:"step,omitempty"`
	Scope       string    `json:"scope,omitempty"`
	Key         string    `json:"key,omitempty"` // abridged
	Side        string    `json:"side,omitempty"`
	Consumer    string    `json:"consumer,omitempty"`
	Source      string    `json:"source,omitempty"`
	MessageID   string    `json:"message_id,omitempty"`
}

func newShownAct(a *record.Act) shownAct {
	return shownAct{
		At: a.At.UTC(), Act: a.Act, Outcome: a.Outcome, Role: a.Role, Person: a.Person, Reason: a.Reason, OperationID: a.OperationID, Step: a.Step,
		Scope: a.Scope, Key: a.Key, Side: a.Letter.Side, Consumer: a.Letter.Consumer, Source: a.Letter.Source, MessageID: a.Letter.ID,
	}
}

func tellActs(p *page.Page, found []record.Act, more bool) {
	if len(found) == 0 {
		p.Printf("nothing was done by hand\n")
		return
	}
	var rows [][]string
	for i := range found {
		a := &found[i]
		by := page.Safe(a.Role)
		if a.Person != "" {
			by = page.Safe(a.Person) + " as " + by
		}
		rows = append(rows, []string{relative(a.At, a.Now), page.Safe(a.Act), page.Safe(a.Outcome), by, actedOn(a), page.Safe(a.Reason)})
	}
	p.Table([]page.Column{{Name: "WHEN"}, {Name: "ACT"}, {Name: "OUTCOME"}, {Name: "BY"}, {Name: "ABOUT"}, {Name: "REASON"}}, rows)
	if more {
		p.Printf("%s\n", p.Dim(fmt.Sprintf("there are more: raise --limit, or narrow it down with --since and --older (%d shown)", len(found))))
	}
}

// actedOn describes the object of an act.
func actedOn(a *record.Act) string {
	switch {
	case a.Letter.ID != "":
		return a.Letter.Side + " " + letterName(&record.Letter{LetterName: a.Letter})
	case a.Act == string(db.Forget):
		return "relay " + page.Safe(a.Letter.Consumer)
	case a.Step != "":
		return "operation " + a.OperationID + " at step " + page.Safe(a.Step)
	}
	return fmt.Sprintf("operation %s (key %s in scope %s)", a.OperationID, page.Safe(a.Key), page.Safe(a.Scope))
}
