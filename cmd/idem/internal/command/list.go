package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

type listCommand struct {
	Scope     string `placeholder:"PREFIX" help:"Scopes that begin like this."`
	Key       string `placeholder:"KEY" help:"Records of this key, in any scope."`
	Execution string `aliases:"operation" placeholder:"ID" help:"The record of this execution id, as logs tell it."`
	State     string `enum:",completed,failed,running,processing,expired" default:"" placeholder:"STATE" help:"completed, failed, running, processing or expired. All but the last are live."`
	Older     span   `placeholder:"SPAN" help:"Claimed longer ago than this."`
	Limit     int    `default:"50" help:"How many at most, up to 10000. Default: ${default}."`
	Full      bool   `help:"Show whole keys."`

	AfterScope string `placeholder:"SCOPE" help:"Go on after this scope and --after-key: next in the output of --json --full."`
	AfterKey   string `placeholder:"KEY" help:"See --after-scope."`
}

// Help implements kong.HelpProvider.
func (listCommand) Help() string {
	return `Reads records in the order of the primary key, and ends at --limit. --scope is a range of the index. The other filters are
looked at row by row, so without --scope they may walk the whole table until --limit or --timeout ends it.

A log tells an execution id: idem list --execution ID finds its record.

Example: idem list --scope tenant-1/ --state failed --older 1h`
}

// Run lists records.
func (c *listCommand) Run(s *session) error {
	filter := record.Filter{ScopePrefix: c.Scope, Key: c.Key, ExecutionID: c.Execution, State: c.State, Older: time.Duration(c.Older), Limit: c.Limit}
	if c.Limit < 1 || c.Limit > 10000 {
		return usage("--limit is between 1 and 10000: go on with --after-scope and --after-key")
	}
	if c.AfterScope != "" || c.AfterKey != "" {
		filter.After = &record.Name{Scope: c.AfterScope, Key: c.AfterKey}
	}
	filter.Limit++ // read one more, to learn whether there are more
	list := shownList{Records: []*shownRecord{}}
	var found []record.Record
	err := s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		found, err = record.List(ctx, tx, filter)
		return err
	})
	if err != nil {
		return c.tooSlow(err)
	}
	if len(found) > c.Limit {
		found, list.More = found[:c.Limit], true
	}
	for i := range found {
		list.Records = append(list.Records, newShownRecord(&found[i], c.Full))
	}
	if last := len(found) - 1; list.More && c.Full {
		list.Next = &shownName{found[last].Scope, found[last].Key}
	}
	return s.show(list, func(p *page.Page) { c.text(p, found, list.More) })
}

// shownList is the JSON of the list.
type shownList struct {
	Records []*shownRecord `json:"records"`
	More    bool           `json:"more"`
	Next    *shownName     `json:"next,omitempty"` // values for --after-scope and --after-key, if keys are not abridged
}

type shownName struct {
	Scope string `json:"scope"`
	Key   string `json:"key"`
}

func (c *listCommand) text(p *page.Page, found []record.Record, more bool) {
	if len(found) == 0 {
		p.Printf("no records\n")
		return
	}
	var rows [][]string
	for i := range found {
		r := &found[i]
		status := "-"
		if r.Status != nil {
			status = strconv.Itoa(int(*r.Status))
		}
		rows = append(rows, []string{
			page.Safe(r.Scope), shownKey(r.Key, c.Full), stateOf(p, r), status, page.Age(r.Now.Sub(r.CreatedAt)),
			expires(r), page.Bytes(r.HeaderBytes + r.BodyBytes), r.ExecutionID,
		})
	}
	p.Table([]page.Column{{Name: "SCOPE"}, {Name: "KEY"}, {Name: "STATE"}, {Name: "STATUS", Right: true}, {Name: "AGE", Right: true},
		{Name: "EXPIRES"}, {Name: "RESPONSE", Right: true}, {Name: "EXECUTION ID"}}, rows)
	if more {
		p.Printf("%s\n", p.Dim(fmt.Sprintf("there are more: raise --limit, or narrow it down with --scope (%d shown)", len(found))))
	}
}

// tooSlow adds a remedy to the error of a list that took too long.
func (c *listCommand) tooSlow(err error) error {
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "57014" && c.Scope == "" {
		return fmt.Errorf("gave up after --timeout: all filters but --scope look at every record; narrow it down with --scope, or raise --timeout")
	}
	return err
}
