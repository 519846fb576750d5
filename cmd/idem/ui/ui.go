// Package ui is a page for people: what idem keeps in Postgres, and what needs a person. The command idem ui serves it, and a program can mount it
// behind its own login:
//
//		page, err := ui.New(ui.Config{Pool: pool, Person: loggedIn})
//		mux.Handle("/idem/", http.StripPrefix("/idem", page))
//
//	  - It reads in read-only transactions, each of one snapshot and with a timeout, at most two at a time. Viewers of the same page within a second share one
//	    reading. No list is read beyond a bounded number of rows where an index leads to them.
//	  - It abridges keys, except the key of a call in doubt, by which a person asks the other side. It fetches and shows no response, input, value, payload
//	    or header. It shows the errors of operations and messages.
//	  - It changes nothing unless the Config says who may. Each change is a POST from the page itself, takes a reason, and is on record in idem.audit with
//	    the person.
//	  - It works without JavaScript, which does no more than to read the page again. Links are relative, so that it can be mounted anywhere.
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

// Config says what a page shows, and to whom. Only the Pool is needed: then every visitor may read, and none may act.
type Config struct {
	// Pool is the database. The page takes at most two of its connections for reading. A role that may only read is enough, unless people act.
	Pool *pgxpool.Pool

	// Token, of 32 characters or more, lets those act who give it in a form, with their name. A cookie of the browser remembers that for 12 hours.
	Token string
	// Private asks for the Token before anything is shown.
	Private bool

	// Person, in place of a Token, is for a program that has a login of its own: it returns the name of the person who has sent the request, which
	// goes on record with what they do. If it is empty, the person may only read. The program keeps out those who may not see the page.
	Person func(*http.Request) string
	// ReadOnly lets no visitor act, whatever else is said.
	ReadOnly bool

	// Hosts are the names, without a port, by which the page may be asked for. A page on a loopback address needs them: otherwise the page of a stranger
	// can have its own name resolve to that address, and read from there. Empty: any name.
	Hosts []string

	// Counts returns how many calls the program has executed and replayed since it began, for the charts: a replay writes nothing to the database. If
	// it is nil the page counts the records that were inserted as executed, and shows no replays.
	Counts func() (executed, replayed int64)

	// Timeout ends a statement that reads. Default: 5 seconds.
	Timeout time.Duration
	// Sealer opens the last errors of operations, and dead letters of the outbox that are redriven. Without one a sealed error is shown as "sealed", and
	// sealed dead letters stay where they are.
	Sealer idem.Sealer
}

const (
	defaultTimeout = 5 * time.Second
	minToken       = 32
)

// Page is an http.Handler.
type Page struct{ site *site }

// New returns the page. It has its own paths below "/": mount it with http.StripPrefix.
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

// ServeHTTP answers a request.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.site.ServeHTTP(w, r) }

// Run reads the overview four times a minute until ctx ends, and returns nil. It fills the charts of the last hour, which the page keeps in memory:
// without it they have what was read while a person looked. An error of a reading leaves a gap.
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
