package command

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/conform"
	"github.com/idem-go/idem/cmd/idem/internal/page"
)

type conformCommand struct {
	URL            string `arg:"" help:"Where the requests are sent: to this path alone."`
	Profile        string `default:"ietf" enum:"ietf,stripe,acp,aip155" placeholder:"NAME" help:"Whose rules: ${enum}. Default: ${default}."`
	Request        string `placeholder:"FILE" group:"request" help:"What is sent: a method in the first line, fields of the header, an empty line, the body."`
	Credential     string `placeholder:"FILE" group:"request" help:"Fields of the header that say who is calling, one to a line. They are never shown."`
	OtherPrincipal string `placeholder:"FILE" group:"request" help:"The same of another caller, who must not be given what the first one is."`
	consent
}

// Help implements kong.HelpProvider.
func (conformCommand) Help() string {
	return `Sends one request again and again under keys of its own - one after the other, 64 at once, behind a cut connection, with another body, without a
key - and compares the answers: 200 requests at most, which may each have an effect. Use a server that is there to be tested. Redirects are not
followed.

Each ` + conform.Unique + ` in the body becomes another value in each request that is not a repetition. Without --request it is a POST of
` + conform.Standard().Body + `. --timeout is for each answer. The exit code is 3 if a rule is broken, and otherwise 6 if one could not be
tried.

Example: idem conform --profile ietf --request order.txt http://127.0.0.1:8080/orders`
}

// Run tests the server against the rules of the profile.
func (c *conformCommand) Run(s *session) error {
	options, err := c.options(s)
	if err != nil {
		return err
	}
	will := fmt.Sprintf("sends up to %d requests, %d at once, to %s: %s, with keys, each of which may have its effect",
		conform.MaxRequests, conform.MaxAtOnce, page.Safe(options.URL.Redacted()), options.Request.Method)
	if err := c.ask(s, will); err != nil {
		return err
	}
	results, err := conform.Test(s.ctx, *options, func(rule string, done, of int) { s.progress("%d of %d: %s", done+1, of, rule) })
	s.progress("")
	if err != nil {
		return err
	}
	shown := newShownConform(options, results)
	if err := s.show(shown, shown.text); err != nil {
		return err
	}
	return shown.verdict()
}

// options returns the configuration of the run. The files with credentials and the request are read
// here, so that errors in them appear before the first request is sent.
func (c *conformCommand) options(s *session) (*conform.Options, error) {
	profile, _ := conform.Find(c.Profile) // the grammar allows no other profile
	o := &conform.Options{Profile: profile, Request: conform.Standard(), Timeout: time.Duration(s.globals.Timeout)}
	if o.Timeout == 0 {
		o.Timeout = time.Hour
	}
	var err error
	if o.URL, err = url.Parse(c.URL); err != nil || o.URL.Host == "" || o.URL.Scheme != "http" && o.URL.Scheme != "https" {
		// The URL may hold a password.
		return nil, usage("%q is no URL: say http://127.0.0.1:8080/orders", page.Safe(strings.ReplaceAll(c.URL, "@", " at ")))
	}
	if c.Request != "" {
		text, err := os.ReadFile(c.Request)
		if err != nil {
			return nil, err
		}
		if o.Request, err = conform.ReadRequest(string(text)); err != nil {
			return nil, usage("%s: %v", c.Request, err)
		}
	}
	for _, from := range []struct {
		file string
		to   *http.Header
	}{{c.Credential, &o.Credential}, {c.OtherPrincipal, &o.Other}} {
		if from.file == "" {
			continue
		}
		text, err := os.ReadFile(from.file)
		if err != nil {
			return nil, err
		}
		if *from.to, err = conform.ReadHeader(string(text)); err != nil {
			return nil, usage("%s: %v", from.file, err)
		}
	}
	return o, nil
}

// shownConform is the JSON of the results.
type shownConform struct {
	Profile  string           `json:"profile"`
	URL      string           `json:"url"`
	Kept     int              `json:"kept"`
	Broken   int              `json:"broken"`
	NotTried int              `json:"not_tried"`
	Rules    []conform.Result `json:"rules"`
}

func newShownConform(o *conform.Options, results []conform.Result) *shownConform {
	shown := &shownConform{Profile: o.Profile.Name, URL: o.URL.Redacted(), Rules: results}
	for _, result := range results {
		switch result.Verdict {
		case conform.Kept:
			shown.Kept++
		case conform.Broken:
			shown.Broken++
		case conform.NotTried:
			shown.NotTried++
		}
	}
	return shown
}

// verdict returns errFound if a rule is broken, and errUnknown if rules were not tried.
func (s *shownConform) verdict() error {
	switch {
	case s.Broken > 0:
		return errFound
	case s.NotTried > 0:
		return errUnknown
	}
	return nil
}

func (s *shownConform) text(p *page.Page) {
	const width, indent = 100, "           "
	for _, result := range s.Rules {
		paint := map[conform.Verdict]func(string) string{conform.Kept: p.Green, conform.Broken: p.Red, conform.NotTried: p.Yellow}[result.Verdict]
		p.Printf("%s %s: %s\n", paint(fmt.Sprintf("%-10s", result.Verdict)), p.Bold(result.Name), result.What)
		if result.Verdict == conform.Kept {
			continue
		}
		p.Printf("%s\n", page.Wrap(page.Safe(result.Why)+".", indent, width))
		p.Printf("%s\n", p.Dim(page.Wrap(result.Source, indent, width)))
		for _, e := range result.Evidence {
			p.Printf("%s%s\n", indent, p.Dim(page.Safe(evidence(e))))
		}
	}
	p.Printf("%s: %d kept, %d broken, %d not tried\n", s.Profile, s.Kept, s.Broken, s.NotTried)
}

// evidence formats an exchange in one line.
func evidence(e conform.Exchange) string {
	key := "no key"
	if len(e.Key) > 0 {
		key = "key " + strings.Join(e.Key, " and ")
		if len(key) > 60 {
			key = key[:60] + "…"
		}
	}
	if e.As != "" {
		key += ", " + e.As
	}
	if e.Error != "" {
		return fmt.Sprintf("%s: %s → %s", key, e.Request, e.Error)
	}
	return fmt.Sprintf("%s: %s → %d %s", key, e.Request, e.Status, e.Body)
}
