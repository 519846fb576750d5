package command

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/display"
)

type showCommand struct {
	recordArgs
	sealKeys
	fullFlag
	Reveal bool `help:"Show the stored response: header and body. If it is sealed, this needs the keys."`
}

// shownRecord is the JSON document of idem show.
type shownRecord struct {
	*record.Record
	BodyText *string `json:"body_text,omitempty"` // set if --reveal is given and the body is UTF-8
}

// Run shows a record. It finds expired records too, because a person often asks why a key was
// executed again.
func (c *showCommand) Run(s *session) error {
	if err := c.resolve(s); err != nil {
		return err
	}
	found, err := queryTx(s, func(ctx context.Context, tx pgx.Tx) (*record.Record, error) {
		return record.Find(ctx, tx, c.Scope, c.Key, c.Reveal)
	})
	if err != nil {
		return err
	}
	if found == nil {
		return c.missing()
	}
	shown := shownRecord{Record: found}
	if c.Reveal {
		if err := c.open(s, found); err != nil {
			return err
		}
		shown.BodyText = record.TextOf(found.Body)
	}
	abridge(&found.Key, c.Full)
	return s.show(shown, func(p *page.Page) { c.text(p, found) })
}

// text prints the facts, and with --reveal the response: header fields sorted by name, then the
// body.
func (c *showCommand) text(p *page.Page, r *record.Record) {
	pairs := append([]page.Pair{{Name: "scope", Value: page.Safe(r.Scope)}, {Name: "key", Value: page.Safe(r.Key)}}, facts(p, r)...)
	if !c.Reveal {
		p.Pairs(append(pairs, page.Pair{Name: "header", Value: hidden(r.HeaderBytes)}, page.Pair{Name: "body", Value: hidden(r.BodyBytes)}))
		return
	}
	p.Pairs(pairs)
	p.Printf("\n")
	// A header that this version cannot decode is printed as it is stored.
	var header map[string][]string
	if err := json.Unmarshal(r.Header, &header); err == nil {
		for _, name := range slices.Sorted(maps.Keys(header)) {
			for _, value := range header[name] {
				p.Printf("%s: %s\n", p.Bold(page.Safe(name)), page.Safe(value))
			}
		}
	} else if len(r.Header) > 0 {
		p.Printf("%s\n", page.Safe(string(r.Header)))
	}
	p.Printf("\n%s\n", page.SafeLines(string(r.Body)))
}

// facts returns everything that is known of a record, except its scope, key and response.
func facts(p *page.Page, r *record.Record) []page.Pair {
	completed := "-"
	if r.CompletedAt != nil {
		completed = page.Time(*r.CompletedAt)
	}
	pairs := []page.Pair{
		{Name: "state", Value: stateOf(p, r)},
		{Name: "execution id", Value: r.ExecutionID},
		{Name: "status", Value: statusOf(r)},
		{Name: "created", Value: p.TimeAndAge(r.CreatedAt, r.Now)},
		{Name: "completed", Value: completed},
		{Name: "expires", Value: page.Time(r.ExpiresAt) + p.Dim(" ("+expires(r)+")")},
		{Name: "hash", Value: r.Hash},
	}
	if r.SealedBy != "" {
		pairs = append(pairs, page.Pair{Name: "sealed with", Value: page.Safe(r.SealedBy)})
	}
	return pairs
}

// statusOf returns the status of the response, or "-" for a record without a response.
func statusOf(r *record.Record) string {
	if r.Status == nil {
		return "-"
	}
	return strconv.Itoa(int(*r.Status))
}

// stateOf returns the state of a record. The state processing is red, because a committed record in
// this state is a fault: see record.LeftBehind.
func stateOf(p *page.Page, r *record.Record) string {
	switch {
	case r.Expired:
		return r.State + ", " + p.Dim("expired")
	case r.State == record.Processing:
		return p.Red(r.State)
	}
	return r.State
}

// expires returns when the key becomes free. The key of an operation in progress is not free before
// the operation ends, so the stored expiry does not count.
func expires(r *record.Record) string {
	if r.State == record.Running && !r.Expired {
		return "after the operation ends"
	}
	return page.Relative(r.ExpiresAt, r.Now)
}

// hidden returns the text in place of n bytes that are shown only with --reveal.
func hidden(n int64) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("%s, shown only with --reveal", page.Bytes(n))
}

// recordArgs has the arguments that identify a record.
type recordArgs struct {
	Scope string `arg:"" help:"Scope as it is stored and idem list shows it."`
	Key   string `arg:"" help:"Key. -: read it from standard input, so that no list of processes or shell history shows it."`
}

// resolve reads the key from standard input if the argument is "-". It fails if the line is empty.
func (n *recordArgs) resolve(s *session) error {
	if n.Key == "-" {
		line, err := bufio.NewReader(s.Stdin).ReadString('\n')
		if n.Key = strings.TrimRight(line, "\r\n"); n.Key == "" {
			return fmt.Errorf("no key on standard input: %w", err)
		}
	}
	return nil
}

// String names the record in a message, with the key abridged.
func (n *recordArgs) String() string {
	return fmt.Sprintf("key %s in scope %s", display.Key(n.Key), page.Safe(n.Scope))
}

// missing is the error for a record that does not exist.
func (n *recordArgs) missing() error {
	return noRecord("there is no record of %s%s", n, scopeHint(n.Scope))
}

// abridge shortens a key for display, unless whole is true. It hides the rest because everyone who
// has scope, key and request can get the stored response. The key of a message may be empty.
func abridge(key *string, whole bool) {
	if !whole && *key != "" {
		*key = display.Key(*key)
	}
}

// scopeHint returns a hint if scope has more than one slash. The caller may have written a scope
// with unescaped slashes in its parts.
func scopeHint(scope string) string {
	if strings.Count(scope, "/") > 1 {
		return fmt.Sprintf("; a slash inside a part of a scope is stored as %%2F, as in %q", idem.Scope("tenant-1", "POST /orders"))
	}
	return ""
}
