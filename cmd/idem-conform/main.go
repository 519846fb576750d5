// Command idem-conform tests from outside whether an HTTP server follows the rules of idempotency
// keys. docs/conform.md describes it. It needs no database, and imports only the standard library.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem/cmd/idem-conform/internal/conform"
)

// Exit codes, as docs/conform.md lists them.
const (
	exitKept     = 0 // every rule is kept
	exitFailed   = 1
	exitUsage    = 2 // invalid arguments
	exitBroken   = 3 // a rule is broken
	exitRefused  = 5 // nothing was sent: the check was not confirmed
	exitNotTried = 6 // no rule is broken, and at least one was not tried

	exitInterrupted = 130
)

const intro = `Usage: idem-conform [flags] URL

Sends one request many times, under keys that it generates, and compares the answers. It repeats the request, sends 64 at once,
cuts a connection, and sends another body and no key. It sends up to 200 requests to URL, and each may take effect: use a test
server. It follows no redirect.

In the body, ` + conform.Unique + ` becomes a new value in each request that is not a repetition. The exit code is 3 if a rule is broken. Otherwise
it is 6 if a rule was not tried.

Example: idem-conform --profile ietf --request order.txt http://127.0.0.1:8080/orders

`

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// arguments has the flags and the URL.
type arguments struct {
	profile, request, failing, credential, other string
	timeout                                      time.Duration
	json, yes                                    bool
	url                                          string
}

// parse reads the arguments. For -h it prints the usage to stderr, and returns flag.ErrHelp.
func parse(args []string, stderr io.Writer) (*arguments, error) {
	var a arguments
	flags := flag.NewFlagSet("idem-conform", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&a.profile, "profile", "ietf", "the `name` of the rules: "+strings.Join(conform.Names(), ", "))
	flags.StringVar(&a.request, "request", "", "a `file` with the request: the method in the first line, header fields, an empty line, the body\n(default POST "+
		conform.Standard().Body+")")
	flags.StringVar(&a.failing, "failing-body", "", "a `file` with a body that makes the request fail, for profile stripe-v2")
	flags.StringVar(&a.credential, "credential", "", "a `file` with the header fields that authenticate the caller, one a line; they are never printed")
	flags.StringVar(&a.other, "other-principal", "", "a `file` with the header fields of another caller, who must not get the answers of the first")
	flags.DurationVar(&a.timeout, "timeout", 30*time.Second, "the `limit` for each answer")
	flags.BoolVar(&a.json, "json", false, "write one JSON document")
	flags.BoolVar(&a.yes, "yes", false, "send the requests without asking")
	flags.BoolVar(&a.yes, "y", false, "short for --yes")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(stderr)
		fmt.Fprint(stderr, intro)
		flags.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w; -h lists the flags", err)
	}
	if a.url = flags.Arg(0); flags.NArg() != 1 {
		return nil, errors.New("give one URL, after the flags")
	}
	return &a, nil
}

// run executes the program and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	fail := func(code int, err error) int {
		fmt.Fprintf(stderr, "idem-conform: %s\n", conform.Printable(err.Error()))
		return code
	}
	a, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitKept
	}
	if err != nil {
		return fail(exitUsage, err)
	}
	options, err := a.options()
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			return fail(exitFailed, err)
		}
		return fail(exitUsage, err)
	}
	if !a.yes && !confirm(options, stdin, stderr) {
		return fail(exitRefused, errors.New("nothing was sent; to send the requests without a question, give --yes"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // after the first signal, the next one ends the process
	results, err := conform.Test(ctx, *options)
	switch {
	case ctx.Err() != nil:
		return fail(exitInterrupted, errors.New("interrupted"))
	case err != nil:
		return fail(exitFailed, err)
	}
	report := newReport(options, results)
	if err := report.print(stdout, a.json); err != nil {
		return fail(exitFailed, err)
	}
	return report.exit()
}

// confirm prints what will be sent, asks for confirmation, and reports whether the answer is yes.
func confirm(o *conform.Options, stdin io.Reader, stderr io.Writer) bool {
	fmt.Fprintf(stderr, "This sends up to %d requests, %d at once, to %s: %s with keys. Each may take effect.\nContinue? [y/N] ",
		conform.MaxRequests, conform.MaxAtOnce, conform.Printable(o.URL.Redacted()), o.Request.Method)
	answer, _ := bufio.NewReader(stdin).ReadString('\n')
	if !strings.HasSuffix(answer, "\n") {
		fmt.Fprintln(stderr)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// options checks the arguments and reads the files that the flags name.
func (a *arguments) options() (*conform.Options, error) {
	profile, ok := conform.Find(a.profile)
	if !ok {
		return nil, fmt.Errorf("--profile is one of %s", strings.Join(conform.Names(), ", "))
	}
	if a.timeout <= 0 {
		return nil, errors.New("--timeout must be positive")
	}
	o := &conform.Options{Profile: profile, Request: conform.Standard(), Timeout: a.timeout}
	var err error
	if o.URL, err = url.Parse(a.url); err != nil || o.URL.Host == "" || o.URL.Scheme != "http" && o.URL.Scheme != "https" {
		shown := a.url
		if at := strings.LastIndex(shown, "@"); at >= 0 {
			shown = "…" + shown[at:] // the part before the @ may contain a password
		}
		return nil, fmt.Errorf("%q is not a URL such as http://127.0.0.1:8080/orders", shown)
	}
	for _, from := range []struct {
		file string
		read func(text string) error
	}{
		{a.request, func(text string) (err error) { o.Request, err = conform.ReadRequest(text); return err }},
		{a.failing, func(text string) error { o.Failing = strings.TrimSuffix(text, "\n"); return nil }},
		{a.credential, readHeader(&o.Credential)},
		{a.other, readHeader(&o.Other)},
	} {
		if from.file == "" {
			continue
		}
		text, err := os.ReadFile(from.file)
		if err != nil {
			return nil, err
		}
		if err := from.read(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", from.file, err)
		}
	}
	return o, nil
}

func readHeader(to *http.Header) func(string) error {
	return func(text string) (err error) {
		*to, err = conform.ReadHeader(text)
		return err
	}
}

// report is the JSON document that the program writes.
type report struct {
	Profile  string           `json:"profile"`
	URL      string           `json:"url"`
	Kept     int              `json:"kept"`
	Broken   int              `json:"broken"`
	NotTried int              `json:"not_tried"`
	Rules    []conform.Result `json:"rules"`
}

func newReport(o *conform.Options, results []conform.Result) *report {
	r := &report{Profile: o.Profile.Name, URL: o.URL.Redacted(), Rules: results}
	for _, result := range results {
		switch result.Verdict {
		case conform.Kept:
			r.Kept++
		case conform.Broken:
			r.Broken++
		case conform.NotTried:
			r.NotTried++
		}
	}
	return r
}

// exit returns the exit code. A broken rule outweighs a rule that was not tried.
func (r *report) exit() int {
	switch {
	case r.Broken > 0:
		return exitBroken
	case r.NotTried > 0:
		return exitNotTried
	}
	return exitKept
}

// print writes the report as JSON, or as text for a person.
func (r *report) print(out io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	var text strings.Builder
	for _, result := range r.Rules {
		fmt.Fprintf(&text, "%-10s %s: %s\n", result.Verdict, result.Name, result.What)
		if result.Verdict == conform.Kept {
			continue
		}
		details := []string{result.Why + ".", result.Source}
		for _, e := range result.Evidence {
			details = append(details, e.String())
		}
		for _, line := range details {
			fmt.Fprintf(&text, "%11s%s\n", "", conform.Printable(line))
		}
	}
	fmt.Fprintf(&text, "%s: %d kept, %d broken, %d not tried\n", r.Profile, r.Kept, r.Broken, r.NotTried)
	_, err := io.WriteString(out, text.String())
	return err
}
