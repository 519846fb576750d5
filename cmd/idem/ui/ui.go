// Package ui is a web page for operators: it shows what idem stores in Postgres, and what needs a
// person. The command idem ui serves it. A program can mount it behind its own login:
//
//	page, err := ui.New(ui.Config{Pool: pool, Person: loggedIn})
//	mux.Handle("/idem/", http.StripPrefix("/idem", page))
//
// The page is safe to use in production:
//
//   - It reads in read-only transactions with a timeout. Each transaction sees one snapshot, and
//     at most two run at a time. Viewers of the same page within a second share what was read.
//     Where an index exists, a list reads a bounded number of rows.
//   - It abridges keys. It shows the whole key of an outside call in doubt, because a person needs
//     that key to ask the other system. It does not read responses, inputs, values, payloads and
//     headers. It shows the errors of operations and messages.
//   - It changes nothing unless the Config says who may make changes. Each change is a POST from
//     the page itself and needs a reason. The transaction of the change records the person and
//     the reason in idem.audit.
//   - It works without JavaScript, which only reloads the page. Links are relative, so the page
//     can be mounted at any path.
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

// Config says what the page shows, and who may make changes. Only Pool is required. With only a
// Pool, every visitor may read, and no visitor may make changes.
type Config struct {
	// Pool is the database. Reading takes at most two connections of the pool at a time. A
	// role with read privileges is enough if the page makes no changes.
	Pool *pgxpool.Pool

	// Token is a secret of at least 32 characters. A visitor who enters the token and a name in a
	// form may make changes. A cookie keeps the login for 12 hours.
	Token string
	// Private requires a login with the Token before the page shows anything.
	Private bool

	// Person returns the name of the person who sent a request, for a program with a login of its
	// own. The name is recorded in idem.audit with each change. If Person returns "", the visitor
	// may read but not make changes. The program itself must reject visitors who may not read. A
	// Config cannot have both a Token and a Person.
	Person func(*http.Request) string
	// ReadOnly forbids changes, whatever the other fields say.
	ReadOnly bool

	// Hosts are the host names, without a port, under which the page answers. If Hosts is empty,
	// the page answers to any name. A page on a loopback address needs Hosts: otherwise a foreign
	// site can resolve its own name to that address and read the page (DNS rebinding).
	Hosts []string

	// Counts returns how many calls the program has executed and replayed since its start. The
	// charts show both. If Counts is nil, the page counts inserted records as executed calls and
	// shows no replays, because a replay does not write to the database.
	Counts func() (executed, replayed int64)

	// Timeout limits each statement that reads. The default is 5 seconds.
	Timeout time.Duration
	// Sealer decrypts the last errors of operations, and the dead letters of the outbox that a
	// person redrives. Without a Sealer the page shows a sealed error as "sealed", and does not
	// redrive sealed dead letters.
	Sealer idem.Sealer
}

const (
	defaultTimeout = 5 * time.Second
	minToken       = 32
)

// Page is the http.Handler of the web page.
type Page struct{ site *site }

// New returns a Page. It fails if c is invalid. The Page serves paths below "/". To mount it at
// another path, use http.StripPrefix.
func New(c Config) (*Page, error) {
	switch {
	case c.Pool == nil:
		return nil, errors.New("ui: Config.Pool is nil")
	case c.Token != "" && len(c.Token) < minToken:
		return nil, errors.New("ui: Config.Token has less than 32 characters, and could be guessed")
	case c.Token != "" && c.Person != nil:
		return nil, errors.New("ui: Config has both a Token and a Person: use one of them")
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

// ServeHTTP serves the page and its forms.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.site.ServeHTTP(w, r) }

// Run reads the figures of the overview every 15 seconds until ctx is done, and returns nil. The
// figures fill the charts of the last hour, which the page keeps in memory. Without Run, the charts
// only have the figures that were read for visitors. A failed reading leaves a gap.
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
