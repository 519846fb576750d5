// Package ui is a web page for operators. It shows the state of idem in Postgres and what needs a
// person. The command idem ui serves it, and a program can mount it behind its own login:
//
//	page, err := ui.New(ui.Config{Pool: pool, Person: loggedIn})
//	mux.Handle("/idem/", http.StripPrefix("/idem", page))
//
// The page is made for production databases:
//
//   - It reads in read-only transactions with one snapshot and a timeout, at most two at a time.
//     Viewers of the same page share a reading within one second. A list reads a bounded number of
//     rows, where an index leads to them.
//   - It abridges keys, except the key of a call in doubt, which an operator needs to ask the other
//     side. It neither reads nor shows responses, inputs, values, payloads and headers. It shows
//     the errors of operations and messages.
//   - It changes nothing unless the Config says who may. Each change is a POST from the page itself
//     and requires a reason. The table idem.audit records it with the person.
//   - It works without JavaScript, which only reloads it. Links are relative, so the page can be
//     mounted anywhere.
package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// Config configures a Page. Only Pool is required: then every visitor may read, and no visitor may
// change anything.
type Config struct {
	// Pool is the database. The page uses at most two connections for reading. A role with SELECT
	// is enough if nobody makes changes.
	Pool *pgxpool.Pool

	// Token lets visitors make changes who enter it in a form together with their name. It has at
	// least 32 characters. A cookie stores the login for 12 hours.
	Token string
	// Private requires the Token for reading too.
	Private bool

	// Person returns the name of the person who sent a request. It replaces Token in a program that
	// has its own login. The audit entries of changes have the name. Without a name the visitor may
	// only read. The program must keep out visitors who may not see the page.
	Person func(*http.Request) string
	// ReadOnly disables all changes, whatever the other fields say.
	ReadOnly bool

	// Hosts lists the host names, without ports, under which the page may be requested. Empty means
	// any name. A page on a loopback address needs this against DNS rebinding: another site could
	// let its own name resolve to that address, and read the page.
	Hosts []string

	// Counts returns how many calls the program has executed and replayed since its start. The
	// charts need it for replays, which write nothing to the database. If it is nil, inserted
	// records count as executions, and no replays are shown.
	Counts func() (executed, replayed int64)

	// Timeout is the timeout of a statement that reads. The default is 5 seconds.
	Timeout time.Duration
	// Sealer opens the last errors of operations, and dead letters of the outbox for a redrive.
	// Without it a sealed error is shown as "sealed", and sealed dead letters cannot be redriven.
	Sealer idem.Sealer
}

const (
	defaultTimeout = 5 * time.Second
	minToken       = 32
)

// Page is an http.Handler. New creates it.
type Page struct{ site *site }

// New returns a page for c. Its paths start at "/", so mount it with http.StripPrefix. New fails if
// c is invalid.
func New(c Config) (*Page, error) {
	switch {
	case c.Pool == nil:
		return nil, errors.New("ui: Config.Pool is nil")
	case c.Token != "" && len(c.Token) < minToken:
		return nil, errors.New("ui: Config.Token has less than 32 characters, and could be guessed")
	case c.Token != "" && c.Person != nil:
		return nil, errors.New("ui: Config has both a Token and a Person: say which of them tells who may act")
	case c.Private && c.Token == "":
		return nil, errors.New("ui: Config.Private needs a Token")
	case c.Timeout < 0:
		return nil, errors.New("ui: Config.Timeout is negative")
	case c.Timeout == 0:
		c.Timeout = defaultTimeout
	}
	s := &site{Config: c, reads: newReads(), logins: make(chan struct{}, 1)}
	if c.Token != "" {
		s.signer = signer(c.Token)
	}
	return &Page{s}, nil
}

// ServeHTTP serves the page.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.site.ServeHTTP(w, r) }

// Run reads the overview four times a minute until ctx ends, and returns nil. The readings fill the
// charts of the last hour, which are kept in memory. Without Run the charts only have readings from
// the times at which somebody looked. A failed reading leaves a gap.
func (p *Page) Run(ctx context.Context) error {
	ticker := time.NewTicker(samplePause)
	defer ticker.Stop()
	for {
		_, _ = p.site.read(ctx, sheets[""], url.Values{})
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
