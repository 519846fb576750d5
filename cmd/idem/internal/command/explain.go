package command

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
)

type explainCommand struct {
	name
	request
}

// Help implements kong.HelpProvider.
func (explainCommand) Help() string {
	return `Tells what a call with this scope and key would get at this moment, and writes nothing. With --request it also compares the hash
of a request with that of the record: as HashJSON and HashBytes make it, and with --method and --target as idemhttp does.

Example: idem explain 'tenant-1/POST %2Forders' 7f3c9a52-0d1e --request order.json --without /client_time`
}

// Verdicts of explain.
const (
	executes = "executes" // fn would run
	replays  = "replays"  // the call would return the stored response
	refused  = "refused"  // the call would return an error, at every attempt
	waits    = "waits"    // the call would wait for the call that holds the key
)

// Run prints what the next call with the key would do.
func (c *explainCommand) Run(s *session) error {
	if err := c.resolve(s); err != nil {
		return err
	}
	hashes, err := c.hashes()
	if err != nil {
		return err
	}
	pool, err := s.connected()
	if err != nil {
		return err
	}
	entry, err := idem.Lookup(s.ctx, pool, c.Scope, c.Key) // Lookup also validates scope and key
	if invalid := invalidName(err); invalid != nil {
		return s.show(invalid, invalid.text)
	}
	if err != nil {
		return err
	}
	var found *record.Record
	var operation *record.Operation
	var holder *record.Holder
	err = s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		// The record of a call in progress is not visible, but its advisory lock is.
		if holder, err = record.HolderOf(ctx, tx, db.LockOf(c.Scope, c.Key)); err != nil {
			return err
		}
		if found, err = record.Find(ctx, tx, c.Scope, c.Key, false); err == nil && found != nil && found.State == record.Running {
			operation, err = record.FindOperation(ctx, tx, found.ExecutionID)
		}
		return err
	})
	if err != nil {
		return err
	}
	e := explain(found, entry, hashes, operation)
	if e.Verdict == waits && holder != nil {
		shown := newShownHolder(*holder)
		e.Holder, e.holder = &shown, holder
	}
	if found == nil && entry.State == idem.StateUnused {
		e.Hint += scopeHint(c.Scope)
	}
	return s.show(e, e.text)
}

// explanation is the outcome that the next call would have, with the reason.
type explanation struct {
	Verdict string       `json:"verdict"` // executes, replays, refused, waits
	Error   string       `json:"error,omitempty"`
	Reason  string       `json:"reason"`
	Hint    string       `json:"hint,omitempty"`
	Hashes  []*hashed    `json:"request_hashes,omitempty"`
	Record  *shownRecord `json:"record,omitempty"`
	Holder  *shownHolder `json:"held_by,omitempty"` // the session whose transaction holds the key

	found  *record.Record
	holder *record.Holder
}

// explain derives the outcome of the next call, in the order in which idem.Do decides.
//
// A key that an open transaction holds makes the call wait. Without a live record the call
// executes. With a live record, idem.Do compares the hash of the request before it looks at the
// state of the record.
func explain(r *record.Record, entry idem.Entry, hashes []*hashed, operation *record.Operation) *explanation {
	e := &explanation{Hashes: hashes, found: r}
	if r != nil {
		e.Record = newShownRecord(r, false)
		compare(hashes, r.Hash)
	}
	live := r != nil && !r.Expired()
	switch {
	case !live && entry.State == idem.StateProcessing && entry.ExecutionID == "":
		e.Verdict, e.Error = waits, "ErrInProgress"
		e.Reason = "a transaction holds the key" + since(entry)
		e.Hint = "the call waits up to WithWait (5 s by default) and then gets ErrInProgress; it takes over if that transaction fails"
	case r == nil:
		e.Verdict, e.Reason = executes, "there is no record of this key"
		e.Hint = "if there should be one: is this the scope that the program uses, has the record expired and been purged, " +
			"was the transaction rolled back?"
	case !live:
		e.Verdict, e.Reason = executes, "the record has expired "+relative(r.ExpiresAt, r.Now)+", so the key is new"
		e.Hint = "callers that retry for longer than the TTL need a longer one: WithTTL"
	case len(hashes) > 0 && !anySame(hashes):
		e.Verdict, e.Error, e.Reason = refused, "ErrMismatch", "the request hashes otherwise than the one that the record was made for"
		e.Hint = "another request needs another key; if it is the same request: does the program hash it in another way, " +
			"or is there a value that differs in every attempt? Try --without"
	case r.State == record.Running:
		e.explainOperation(operation)
	case r.State == record.Processing:
		e.Verdict, e.Error, e.Reason = refused, "ErrTxEnded", "an earlier fn ended its transaction itself, and committed a part of its effect without a response"
		e.Hint = "see to that effect, then: idem evict; otherwise the key is free when the record expires"
	default:
		e.replay(r)
	}
	return e
}

// replay sets the outcome of a call whose key has a response.
func (e *explanation) replay(r *record.Record) {
	e.Verdict, e.Reason = replays, "the effect of execution "+r.ExecutionID+" is committed"
	if r.State == record.Failed {
		e.Reason = "execution " + r.ExecutionID + " was rejected for good, and its effect undone"
	}
	if len(e.Hashes) == 0 {
		e.Hint = "a call with another hash gets ErrMismatch instead: compare a request with --request"
	}
}

func since(entry idem.Entry) string {
	if entry.Since.IsZero() {
		return ""
	}
	return ", since " + page.Time(entry.Since)
}

func sentence(text string) string {
	if strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}

func (e *explanation) text(p *page.Page) {
	verdict := map[string]string{
		executes: p.Yellow("executes") + ": the function runs",
		replays:  p.Green("replays") + ": the stored response is given again",
		refused:  "is " + p.Red("refused") + ": " + e.Error,
		waits:    p.Yellow("waits") + ", then " + e.Error,
	}[e.Verdict]
	p.Printf("The next call %s.\n", verdict)
	p.Printf("%s\n", page.Wrap(sentence(e.Reason), "Why:  ", 100))
	if e.Hint != "" {
		p.Printf("%s\n", page.Wrap(sentence(e.Hint), "Note: ", 100))
	}
	if len(e.Hashes) > 0 {
		p.Printf("\n")
		var rows [][]string
		for _, h := range e.Hashes {
			rows = append(rows, []string{h.Way, h.outcome(p)})
		}
		p.Table([]page.Column{{Name: "REQUEST HASHED BY"}, {Name: "HASH"}}, rows)
	}
	if e.holder != nil {
		p.Printf("\n")
		tellHolders(p, []record.Holder{*e.holder})
	}
	if e.found != nil {
		p.Printf("\n")
		p.Pairs(facts(p, e.found))
	}
}
