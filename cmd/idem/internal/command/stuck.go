package command

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

type stuckCommand struct {
	Older span `default:"1m" placeholder:"SPAN" help:"How long a transaction may hold a key. Default: ${default}."`
	Scan  bool `help:"Walk the table for records left behind, however large it is."`
	Full  bool `help:"Show whole keys."`
}

// Help says more.
func (stuckCommand) Help() string {
	return `Lists what does not go on by itself: keys that a transaction holds for long, and records that an fn has left behind by ending its
transaction itself. No index leads to the latter: a table above 64 MB is walked only with --scan, in short transactions.
The exit code is 3 if something was found.

Example: idem stuck --older 5m --scan`
}

// scanUpTo is the size of a table that is walked without being told to.
const scanUpTo = 64 << 20

// Run looks for what is stuck.
func (c *stuckCommand) Run(s *session) error {
	found := shownStuck{Held: []shownHolder{}, LeftBehind: []*shownRecord{}}
	var size int64
	err := s.limited(func(ctx context.Context, tx pgx.Tx) error {
		holders, err := record.Holders(ctx, tx, time.Duration(c.Older))
		for _, h := range holders {
			found.Held = append(found.Held, newShownHolder(h))
		}
		if err != nil {
			return err
		}
		size, err = record.Size(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	var left []record.Record
	if found.Scanned = c.Scan || size <= scanUpTo; found.Scanned {
		err = record.LeftBehind(s.ctx, s.pool, time.Duration(s.globals.Timeout), func(r record.Record) { left = append(left, r) },
			func(done, blocks int64) { s.progress("walking the table: %d of %d blocks", done, blocks) })
		s.progress("")
		if err != nil {
			return err
		}
	}
	for i := range left {
		found.LeftBehind = append(found.LeftBehind, newShownRecord(&left[i], c.Full))
	}
	if err := s.show(found, func(p *page.Page) { c.text(p, found, left, size) }); err != nil {
		return err
	}
	if len(found.Held)+len(found.LeftBehind) > 0 {
		return errFound
	}
	return nil
}

// shownStuck is what needs a person, in JSON.
type shownStuck struct {
	Held       []shownHolder  `json:"held"`
	LeftBehind []*shownRecord `json:"left_behind"`
	Scanned    bool           `json:"scanned"` // whether the table was walked for what was left behind
}

type shownHolder struct {
	PID         int32    `json:"pid"`
	Application string   `json:"application_name"`
	Role        string   `json:"role"`
	State       string   `json:"state"`
	Waiting     string   `json:"waiting_for,omitempty"`
	Seconds     *float64 `json:"seconds"` // nil if the role may not see it
}

func newShownHolder(h record.Holder) shownHolder {
	shown := shownHolder{PID: h.PID, Application: h.Application, Role: h.Role, State: h.State, Waiting: h.Waiting}
	if h.Visible {
		seconds := h.Since.Seconds()
		shown.Seconds = &seconds
	}
	return shown
}

func (c *stuckCommand) text(p *page.Page, found shownStuck, left []record.Record, size int64) {
	if len(found.Held) > 0 {
		p.Printf("%s\n", p.Bold("Transactions that hold keys"))
		var rows [][]string
		for _, h := range found.Held {
			age := "?"
			if h.Seconds != nil {
				age = page.Age(time.Duration(*h.Seconds * float64(time.Second)))
			}
			rows = append(rows, []string{fmt.Sprint(h.PID), age, page.Safe(h.Role), page.Safe(h.Application), h.State, h.Waiting})
		}
		p.Table([]page.Column{{Name: "PID", Right: true}, {Name: "FOR", Right: true}, {Name: "ROLE"}, {Name: "APPLICATION"}, {Name: "STATE"}, {Name: "WAITS FOR"}}, rows)
		p.Printf("%s\n\n", page.Wrap("Their callers get ErrInProgress. See what they do; to end one, which rolls its effect back and frees its keys: "+
			"SELECT pg_terminate_backend(PID). To have the server end idle ones: idle_in_transaction_session_timeout.", "  ", 100))
	}
	if len(left) > 0 {
		p.Printf("%s\n", p.Bold("Records that an fn has left behind"))
		var rows [][]string
		for i := range left {
			r := &left[i]
			rows = append(rows, []string{page.Safe(r.Scope), shownKey(r.Key, c.Full), page.Age(r.Now.Sub(r.CreatedAt)), relative(r.ExpiresAt, r.Now), r.OperationID})
		}
		p.Table([]page.Column{{Name: "SCOPE"}, {Name: "KEY"}, {Name: "AGE", Right: true}, {Name: "EXPIRES"}, {Name: "OPERATION ID"}}, rows)
		p.Printf("%s\n\n", page.Wrap("An fn ended its transaction itself, so a part of its effect may be committed without a response. The key is refused with "+
			"ErrTxEnded until the record expires. See to the effect by the operation id, then: idem evict.", "  ", 100))
	}
	if !found.Scanned {
		p.Printf("%s\n", page.Wrap(fmt.Sprintf("The table has %s and was not walked for records left behind: --scan.", page.Bytes(size)), "", 100))
	}
	if len(found.Held)+len(left) == 0 {
		p.Printf("%s\n", p.Green("nothing is stuck"))
	}
}
