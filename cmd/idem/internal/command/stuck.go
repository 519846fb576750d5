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
	Older span `default:"1m" placeholder:"SPAN" help:"Time that a transaction may hold a key. Default: ${default}."`
	Scan  bool `help:"Scan the table for records that were left behind, whatever its size."`
	fullFlag
	sealKeys
}

// maxHolders is the maximum number of listed sessions that hold keys.
const maxHolders = 1000

// scanLimit is the size, in bytes, up to which the table idem.records is scanned without --scan.
// The scan of a larger table takes long, and displaces pages of other tables from the cache.
const scanLimit = 64 << 20

// Run prints what needs a person. It returns errFound if there is something, and errUnknown if
// nothing was found but the table was not scanned.
func (c *stuckCommand) Run(s *session) error {
	sealer, err := c.sealer(s)
	if err != nil {
		return err
	}
	found := stuck{LeftBehind: []record.Record{}} // not nil, so that JSON shows an empty list as []
	err = s.inTx(func(ctx context.Context, tx pgx.Tx) error { return c.read(ctx, tx, &found) })
	openOperations(found.Parked, sealer, c.Full)
	openOperations(found.Unattended, sealer, c.Full)
	if err == nil && found.Scanned {
		err = record.LeftBehind(s.ctx, s.pool, time.Duration(s.globals.Timeout), func(r record.Record) {
			abridge(&r.Key, c.Full)
			found.LeftBehind = append(found.LeftBehind, r)
		}, func(done, blocks int64) { s.progress("scanning the table: %d of %d blocks", done, blocks) })
		s.progress("")
	}
	if err == nil {
		err = s.show(&found, found.text)
	}
	switch {
	case err != nil:
		return err
	case found.any():
		return errFound
	case !found.Scanned:
		return errUnknown
	}
	return nil
}

// stuck is the result of the search, and the JSON document of idem stuck.
type stuck struct {
	Held       []record.Holder    `json:"held"`
	Parked     []record.Operation `json:"parked"`
	Unattended []record.Operation `json:"unattended"`
	LeftBehind []record.Record    `json:"left_behind"`
	Scanned    bool               `json:"scanned"` // whether the table was scanned

	size int64 // the size of the table idem.records in bytes
}

func (f *stuck) any() bool {
	return len(f.Held)+len(f.Parked)+len(f.Unattended)+len(f.LeftBehind) > 0
}

// read finds the sessions that hold keys for long, and the operations that are parked or that no
// process executes. Records that were left behind have no index, so only a scan of the table finds
// them.
func (c *stuckCommand) read(ctx context.Context, tx pgx.Tx, found *stuck) (err error) {
	old := time.Duration(c.Older)
	if found.Held, err = record.Holders(ctx, tx, old, maxHolders); err != nil {
		return err
	}
	if found.Unattended, err = record.UnattendedOperations(ctx, tx, old); err != nil {
		return err
	}
	if found.Parked, err = record.ParkedOperations(ctx, tx); err != nil {
		return err
	}
	found.size, err = record.Size(ctx, tx)
	found.Scanned = c.Scan || found.size <= scanLimit
	return err
}

// text prints each section that is not empty, and what to do about its entries.
func (f *stuck) text(p *page.Page) {
	printHolders(p, f.Held)
	printOperations(p, "Parked operations", "Callers of their keys get operation.ErrParked. "+
		"docs/operations-reference.md says what to do about each reason. Then: idem operation retry, resolve or cancel.", f.Parked)
	printOperations(p, "Operations that are due and that no process executes", "Does a process run a Worker that has these definitions?", f.Unattended)
	f.printLeftBehind(p)
	if !f.Scanned {
		p.Printf("%s\n", page.Wrap(fmt.Sprintf("The table has %s and was not scanned for records that were left behind: use --scan.", page.Bytes(f.size)), "", 100))
	}
	if !f.any() && f.Scanned {
		p.Printf("%s\n", p.Green("nothing is stuck"))
	}
}

// printHolders prints the sessions that hold keys and the sessions that block them, and says what
// to do.
//
// If each of the sessions is blocked, it advises against ending them, because the next session
// would be blocked in the same way.
func printHolders(p *page.Page, held []record.Holder) {
	if len(held) == 0 {
		return
	}
	p.Printf("%s\n", p.Bold("Transactions that hold keys"))
	(&table[record.Holder]{
		columns: page.Columns(">PID", ">FOR", ">KEYS", "ROLE", "APPLICATION", "STATE", "WAITS FOR"),
		row: func(_ *page.Page, h *record.Holder) []string {
			age := "?"
			if h.Visible() {
				age = page.Age(h.Since())
			}
			return []string{fmt.Sprint(h.PID), age, fmt.Sprint(h.Keys), page.Safe(h.Role), page.Safe(h.Application), h.State, h.Waiting}
		},
	}).print(p, held)
	for _, h := range held {
		if h.Blocker != nil {
			p.Printf("%s\n", page.Wrap(fmt.Sprintf("Process %d is blocked by %s: %s.", h.PID, h.Blocker, h.Blocker.Remedy()), "  ", 100))
		}
	}
	advice := "Their callers get ErrInProgress. "
	if slices.ContainsFunc(held, func(h record.Holder) bool { return h.Blocker == nil }) {
		advice += "Find out what a process that is not blocked does. SELECT pg_terminate_backend(PID) ends it, rolls back its effect and frees its keys. " +
			"idle_in_transaction_session_timeout ends idle transactions."
	} else {
		advice += "Ending a blocked process helps its own callers only: the next one is blocked in the same way."
	}
	p.Printf("%s\n\n", page.Wrap(advice, "  ", 100))
}

// printLeftBehind prints the records that stayed without a response because the function of a call
// ended its own transaction.
func (f *stuck) printLeftBehind(p *page.Page) {
	if len(f.LeftBehind) == 0 {
		return
	}
	p.Printf("%s\n", p.Bold("Records that an fn left behind"))
	(&table[record.Record]{
		columns: page.Columns("SCOPE", "KEY", ">AGE", "EXPIRES", "EXECUTION ID"),
		row: func(_ *page.Page, r *record.Record) []string {
			return []string{page.Safe(r.Scope), page.Safe(r.Key), page.Age(r.Now.Sub(r.CreatedAt)), page.Relative(r.ExpiresAt, r.Now), r.ExecutionID}
		},
	}).print(p, f.LeftBehind)
	p.Printf("%s\n\n", page.Wrap("An fn ended its own transaction, so a part of its effect may be committed without a response. Calls with the key get "+
		"ErrTxEnded until the record expires. Check the effect by the execution id, then: idem evict.", "  ", 100))
}
