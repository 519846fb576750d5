package command

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

type showCommand struct {
	name
	sealKeys
	Reveal bool `help:"Show the stored response: header and body. It takes the keys if it is sealed."`
	Full   bool `help:"Show the whole key."`
}

// Help implements kong.HelpProvider.
func (showCommand) Help() string {
	return `Reads one record by its primary key, expired or not. The response is not even fetched unless --reveal asks for it.

Example: idem show 'tenant-1/POST %2Forders' 7f3c9a52-0d1e --reveal`
}

// Run prints the record.
func (c *showCommand) Run(s *session) error {
	if err := c.resolve(s); err != nil {
		return err
	}
	var found *record.Record
	err := s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		found, err = record.Find(ctx, tx, c.Scope, c.Key, c.Reveal)
		return err
	})
	if err != nil {
		return err
	}
	if found == nil {
		return noRecordError{"there is no record of " + c.name.String() + scopeHint(c.Scope)}
	}
	shown := newShownRecord(found, c.Full)
	if c.Reveal {
		if err := c.open(s, found); err != nil {
			return err
		}
		shown.reveal(found)
	}
	return s.show(shown, func(p *page.Page) { c.text(p, found, shown) })
}

// shownRecord is the JSON of a record.
type shownRecord struct {
	Scope       string     `json:"scope"`
	Key         string     `json:"key"`
	KeyBytes    int        `json:"key_bytes"`
	State       string     `json:"state"`
	Expired     bool       `json:"expired"`
	ExecutionID string     `json:"execution_id"`
	Status      *int32     `json:"status"`
	CreatedAt   time.Time  `json:"created_at"`
	CompletedAt *time.Time `json:"completed_at"`
	ExpiresAt   time.Time  `json:"expires_at"`
	Hash        string     `json:"hash"`
	SealedBy    string     `json:"sealed_by,omitempty"`
	HeaderBytes int64      `json:"header_bytes"`
	BodyBytes   int64      `json:"body_bytes"`

	Header   json.RawMessage `json:"header,omitempty"`
	Body     []byte          `json:"body,omitempty"`      // base64
	BodyText *string         `json:"body_text,omitempty"` // only if the body is valid UTF-8
}

func newShownRecord(r *record.Record, wholeKey bool) *shownRecord {
	shown := &shownRecord{
		Scope: r.Scope, Key: jsonKey(r.Key, wholeKey), KeyBytes: len(r.Key), State: r.State, Expired: r.Expired(),
		ExecutionID: r.ExecutionID, Status: r.Status, CreatedAt: r.CreatedAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
		Hash: hex.EncodeToString(r.Hash), SealedBy: r.SealedBy, HeaderBytes: r.HeaderBytes, BodyBytes: r.BodyBytes,
	}
	if r.CompletedAt != nil {
		at := r.CompletedAt.UTC()
		shown.CompletedAt = &at
	}
	return shown
}

func (shown *shownRecord) reveal(r *record.Record) {
	shown.Header, shown.Body = r.Header, r.Body
	if r.Body != nil && utf8.Valid(r.Body) {
		text := string(r.Body)
		shown.BodyText = &text
	}
}

func (c *showCommand) text(p *page.Page, r *record.Record, shown *shownRecord) {
	p.Pairs(slices.Concat([]page.Pair{
		{Name: "scope", Value: page.Safe(r.Scope)},
		{Name: "key", Value: shownKey(r.Key, c.Full)},
	}, facts(p, r)))
	if !c.Reveal {
		p.Pairs([]page.Pair{
			{Name: "header      ", Value: hidden(r.HeaderBytes)},
			{Name: "body        ", Value: hidden(r.BodyBytes)},
		})
		return
	}
	p.Printf("\n")
	var header map[string][]string
	if err := json.Unmarshal(shown.Header, &header); err == nil {
		for _, name := range slices.Sorted(maps.Keys(header)) {
			for _, value := range header[name] {
				p.Printf("%s: %s\n", p.Bold(page.Safe(name)), page.Safe(value))
			}
		}
	} else if len(shown.Header) > 0 {
		p.Printf("%s\n", page.Safe(string(shown.Header)))
	}
	p.Printf("\n%s\n", page.SafeLines(string(r.Body)))
}

// facts returns the attributes of a record, apart from its name and response.
func facts(p *page.Page, r *record.Record) []page.Pair {
	status, completed := "-", "-"
	if r.Status != nil {
		status = strconv.Itoa(int(*r.Status))
	}
	if r.CompletedAt != nil {
		completed = page.Time(*r.CompletedAt)
	}
	pairs := []page.Pair{
		{Name: "state", Value: stateOf(p, r)},
		{Name: "execution id", Value: r.ExecutionID},
		{Name: "status", Value: status},
		{Name: "created", Value: page.Time(r.CreatedAt) + p.Dim(" ("+relative(r.CreatedAt, r.Now)+")")},
		{Name: "completed", Value: completed},
		{Name: "expires", Value: page.Time(r.ExpiresAt) + p.Dim(" ("+expires(r)+")")},
		{Name: "hash", Value: hex.EncodeToString(r.Hash)},
	}
	if r.SealedBy != "" {
		pairs = append(pairs, page.Pair{Name: "sealed with", Value: page.Safe(r.SealedBy)})
	}
	return pairs
}

func stateOf(p *page.Page, r *record.Record) string {
	switch {
	case r.Expired():
		return r.State + ", " + p.Dim("expired")
	case r.State == record.Processing:
		return p.Red(r.State)
	}
	return r.State
}

// expires describes the time at which the key becomes new. The record of an operation in progress
// does not expire.
func expires(r *record.Record) string {
	if r.State == record.Running && !r.Expired() {
		return "after it is over"
	}
	return relative(r.ExpiresAt, r.Now)
}

func relative(t, now time.Time) string {
	if d := now.Sub(t); d >= 0 {
		return page.Age(d) + " ago"
	}
	return "in " + page.Age(t.Sub(now))
}

func hidden(n int64) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("%s, not shown without --reveal", page.Bytes(n))
}
