package command

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

type stuckCommand struct {
	Older span `default:"1m" placeholder:"SPAN" help:"How long a transaction may hold a key. Default: ${default}."`
	Scan  bool `help:"Walk the table for records left behind, however large it is."`
	Full  bool `help:"Show whole keys."`
	sealKeys
}

// Help implements kong.HelpProvider.
func (stuckCommand) Help() string {
	return `Lists what needs a person: keys that a transaction holds for long, operations that are parked, or due and without an owner, and records
that an fn has left behind by ending its transaction itself. Operations are listed with their reason and their last error; an error that is sealed
takes the keys. No index leads to what is left behind: a table above 64 MB is walked only with --scan. The exit code is 3 if something was found,
and otherwise 6 if the table was not walked.

Example: idem stuck --older 5m --scan`
}

// scanUpTo is the size in bytes up to which the table is scanned without --scan.
const scanUpTo = 64 << 20

// Run prints what needs a person. It returns errFound if it found anything, and errUnknown if it
// found nothing but did not scan the table.
func (c *stuckCommand) Run(s *session) error {
	found := stuck{}
	sealer, err := c.sealer(s)
	if err != nil {
		return err
	}
	err = s.limited(func(ctx context.Context, tx pgx.Tx) error { return c.ask(ctx, tx, &found) })
	record.OpenErrors(found.parked, sealer)
	record.OpenErrors(found.unattended, sealer)
	if err == nil && found.scanned {
		err = record.LeftBehind(s.ctx, s.pool, time.Duration(s.globals.Timeout), func(r record.Record) { found.left = append(found.left, r) },
			func(done, blocks int64) { s.progress("walking the table: %d of %d blocks", done, blocks) })
		s.progress("")
	}
	if err != nil {
		return err
	}
	if err := s.show(found.shown(c.Full), func(p *page.Page) { c.text(p, &found) }); err != nil {
		return err
	}
	// The exit code is green only if the command looked everywhere.
	if found.any() {
		return errFound
	}
	if !found.scanned {
		return errUnknown
	}
	return nil
}

// stuck is the result of the command.
type stuck struct {
	held       []record.Holder
	parked     []record.Operation
	unattended []record.Operation
	left       []record.Record

	size    int64 // size of idem.records in bytes
	scanned bool  // the table was scanned for records left behind
}

func (f *stuck) any() bool { return len(f.held)+len(f.parked)+len(f.unattended)+len(f.left) > 0 }

// ask reads all but the records that were left behind, and decides whether to scan for those.
func (c *stuckCommand) ask(ctx context.Context, tx pgx.Tx, found *stuck) (err error) {
	old := time.Duration(c.Older)
	if found.held, err = record.Holders(ctx, tx, old); err != nil {
		return err
	}
	if found.unattended, err = record.UnattendedOperations(ctx, tx, old); err != nil {
		return err
	}
	if found.parked, err = record.ParkedOperations(ctx, tx); err != nil {
		return err
	}
	found.size, err = record.Size(ctx, tx)
	found.scanned = c.Scan || found.size <= scanUpTo
	return err
}

func (f *stuck) shown(wholeKeys bool) shownStuck {
	shown := shownStuck{
		Held: []shownHolder{}, Parked: newShownOperations(f.parked, wholeKeys), Unattended: newShownOperations(f.unattended, wholeKeys),
		LeftBehind: []*shownRecord{}, Scanned: f.scanned,
	}
	for _, h := range f.held {
		shown.Held = append(shown.Held, newShownHolder(h))
	}
	for i := range f.left {
		shown.LeftBehind = append(shown.LeftBehind, newShownRecord(&f.left[i], wholeKeys))
	}
	return shown
}

// shownStuck is the JSON of the result.
type shownStuck struct {
	Held       []shownHolder    `json:"held"`
	Parked     []shownOperation `json:"parked"`
	Unattended []shownOperation `json:"unattended"`
	LeftBehind []*shownRecord   `json:"left_behind"`
	Scanned    bool             `json:"scanned"` // the table was scanned for records left behind
}

type shownHolder struct {
	PID         int32    `json:"pid"`
	Application string   `json:"application_name"`
	Role        string   `json:"role"`
	State       string   `json:"state"`
	Waiting     string   `json:"waiting_for,omitempty"`
	Seconds     *float64 `json:"seconds"` // nil if the role cannot see it

	Blocker *shownBlocker `json:"blocked_by,omitempty"` // the session at the end of the chain that it waits for
}

type shownBlocker struct {
	PID         int32      `json:"pid"` // 0 for a prepared transaction
	Application string     `json:"application_name"`
	Role        string     `json:"role"`
	State       string     `json:"state"`
	Seconds     *float64   `json:"seconds"`     // age of its transaction; nil if the role cannot see it
	QueryStart  *time.Time `json:"query_start"` // nil if the role cannot see it
}

func newShownHolder(h record.Holder) shownHolder {
	shown := shownHolder{PID: h.PID, Application: h.Application, Role: h.Role, State: h.State, Waiting: h.Waiting}
	if h.Visible {
		seconds := h.Since.Seconds()
		shown.Seconds = &seconds
	}
	if b := h.Blocker; b != nil {
		shown.Blocker = &shownBlocker{PID: b.PID, Application: b.Application, Role: b.Role, State: b.State, QueryStart: b.QueryStart}
		if b.QueryStart != nil {
			seconds := b.Since.Seconds()
			shown.Blocker.Seconds = &seconds
		}
	}
	return shown
}

func (c *stuckCommand) text(p *page.Page, found *stuck) {
	tellHolders(p, found.held)
	tellOperations(p, "Operations that are parked", "Callers of their keys get operation.ErrParked. docs/operations-reference.md says what to do about each reason. Then: idem operation retry, resolve or cancel.", found.parked)
	tellOperations(p, "Operations that are due, and without an owner", "Is a process there that has these operations, and asks for work?", found.unattended)
	c.tellLeft(p, found.left)
	if !found.scanned {
		p.Printf("%s\n", page.Wrap(fmt.Sprintf("The table has %s and was not walked for what was left behind: --scan.", page.Bytes(found.size)), "", 100))
	}
	if !found.any() && found.scanned {
		p.Printf("%s\n", p.Green("nothing is stuck"))
	}
}

// tellHolders prints the transactions that hold keys, with their blockers and advice. If all of
// them are blocked, ending them does not help: the next caller is blocked too.
func tellHolders(p *page.Page, held []record.Holder) {
	if len(held) == 0 {
		return
	}
	p.Printf("%s\n", p.Bold("Transactions that hold keys"))
	var rows [][]string
	for _, h := range held {
		age := "?"
		if h.Visible {
			age = page.Age(h.Since)
		}
		rows = append(rows, []string{fmt.Sprint(h.PID), age, page.Safe(h.Role), page.Safe(h.Application), h.State, h.Waiting})
	}
	p.Table([]page.Column{{Name: "PID", Right: true}, {Name: "FOR", Right: true}, {Name: "ROLE"}, {Name: "APPLICATION"}, {Name: "STATE"}, {Name: "WAITS FOR"}}, rows)
	for _, h := range held {
		if h.Blocker != nil {
			p.Printf("%s\n", page.Wrap(fmt.Sprintf("Process %d is blocked by %s: %s.", h.PID, h.Blocker, h.Blocker.Remedy()), "  ", 100))
		}
	}
	advice := "Their callers get ErrInProgress. "
	if slices.ContainsFunc(held, func(h record.Holder) bool { return h.Blocker == nil }) {
		advice += "See what a process that is not blocked does; to end it, which rolls its effect back and frees its keys: SELECT pg_terminate_backend(PID). " +
			"To have the server end idle ones: idle_in_transaction_session_timeout."
	} else {
		advice += "Ending a blocked process helps its own callers only: the next one is blocked in the same way."
	}
	p.Printf("%s\n\n", page.Wrap(advice, "  ", 100))
}

// tellLeft prints the records that were left behind.
func (c *stuckCommand) tellLeft(p *page.Page, left []record.Record) {
	if len(left) == 0 {
		return
	}
	p.Printf("%s\n", p.Bold("Records that an fn has left behind"))
	var rows [][]string
	for i := range left {
		r := &left[i]
		rows = append(rows, []string{page.Safe(r.Scope), shownKey(r.Key, c.Full), page.Age(r.Now.Sub(r.CreatedAt)), relative(r.ExpiresAt, r.Now), r.ExecutionID})
	}
	p.Table([]page.Column{{Name: "SCOPE"}, {Name: "KEY"}, {Name: "AGE", Right: true}, {Name: "EXPIRES"}, {Name: "EXECUTION ID"}}, rows)
	p.Printf("%s\n\n", page.Wrap("An fn ended its transaction itself, so a part of its effect may be committed without a response. The key is refused with "+
		"ErrTxEnded until the record expires. See to the effect by the execution id, then: idem evict.", "  ", 100))
}
