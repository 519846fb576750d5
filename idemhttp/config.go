package idemhttp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

const (
	defaultHeader      = "Idempotency-Key"
	defaultReplayed    = "Idempotency-Replayed"
	defaultMaxResponse = 1 << 20
)

// Config says how a Middleware behaves. Only Scope has to be set.
type Config struct {
	// Scope says who is calling and which operation: idem.Scope(tenant, "POST /orders"), say. Take who from what the request
	// proves, such as its credential, and as the principal, not the credential itself: after a rotation, a retry is still a
	// retry. Whoever has the scope, the key and the request is given the answer. An error is 403, or the *Problem that it is.
	// It is required.
	Scope func(r *http.Request) (string, error)

	// Header is the name of the header field that has the key. The default is Idempotency-Key.
	Header string

	// Optional lets a request without a key through. Its handler runs in a transaction as well and Store decides about it,
	// but nothing is recorded. By default such a request is refused with 400.
	Optional bool

	// Methods are those that need a key. Under Wrap others pass through, untouched; under Handle they have a transaction
	// and no key. The default is POST and PATCH.
	Methods []string

	// Fingerprint tells whether two requests are the same. The default is DefaultFingerprint. body is the whole body.
	Fingerprint func(r *http.Request, body []byte) (idem.Hash, error)

	// Without are JSON pointers to what differs in every attempt and does not matter, such as "/client_time": see
	// idem.Without. They are for the default Fingerprint, and for bodies in JSON.
	Without []string

	// MaxBody limits the body of a request, in bytes: above it, 413. The body is held in memory. The default is 1 MiB.
	MaxBody int64

	// Store decides by the status of an answer what becomes of it and of the handler's writes. By default, below 400 is
	// Commit; 409, 425, 429 and 5xx are Forget; the rest of 4xx is Undo.
	Store func(status int) Outcome

	// Keep are the header fields of an answer that are recorded. The default is all of them, except those that are never
	// kept: Set-Cookie and other secrets, and what belongs to one connection or one exchange. What is not kept is sent to the
	// first caller only.
	Keep []string

	// Authorize is asked before every replay whether this caller may have this answer, for what Scope cannot know: a
	// permission that was taken away since. result must not be changed. An error is 403, or the *Problem that it is, and
	// nothing of the answer is sent.
	Authorize func(r *http.Request, result idem.Result) error

	// ReplayedHeader is the name of the header field that is "true" in a replay. The default is Idempotency-Replayed.
	ReplayedHeader string

	// Statuses are the status codes of problems. The default is those of the IETF's draft.
	Statuses Statuses

	// Render writes a problem. The default is Problem.ServeHTTP.
	Render func(w http.ResponseWriter, r *http.Request, p *Problem)

	// Logger is told the cause of every 5xx that does not come from the handler itself. It is never shown a key in full.
	// The default is slog.Default().
	Logger *slog.Logger

	// What follows is for idem.Do: see the option of the same name. Zero is its default.

	TTL         time.Duration
	Wait        time.Duration // negative: a duplicate is answered at once
	Retries     int           // negative: none
	TxOptions   pgx.TxOptions
	MaxResponse int
	Observer    idem.Observer
}

// setDefaults fills in what is not set and refuses what cannot be meant.
func (c *Config) setDefaults() error {
	switch {
	case c.Scope == nil:
		return errors.New("idemhttp: Config.Scope is required: a scope that callers share leaks the answer of one to another")
	case c.Fingerprint != nil && len(c.Without) > 0:
		return errors.New("idemhttp: Config.Without is for the default Fingerprint, and there is another")
	case c.MaxBody < 0:
		return fmt.Errorf("idemhttp: Config.MaxBody: %d is negative", c.MaxBody)
	case c.TTL != 0 && c.TTL < time.Millisecond:
		return fmt.Errorf("idemhttp: Config.TTL: %v is less than a millisecond", c.TTL)
	case c.MaxResponse < 0 || c.MaxResponse > 512<<20:
		return fmt.Errorf("idemhttp: Config.MaxResponse: %d is not between 0 and 512 MiB", c.MaxResponse)
	case c.TxOptions.AccessMode == pgx.ReadOnly:
		return errors.New("idemhttp: Config.TxOptions: a read-only transaction cannot record an answer")
	case c.Methods != nil && len(c.Methods) == 0:
		return errors.New("idemhttp: Config.Methods is empty: nothing would be protected")
	}
	for _, method := range c.Methods {
		if !isToken(method) || method != strings.ToUpper(method) {
			return fmt.Errorf("idemhttp: Config.Methods: there is no method %q", method)
		}
	}
	fill(&c.Header, defaultHeader)
	fill(&c.ReplayedHeader, defaultReplayed)
	fill(&c.MaxBody, defaultMaxBody)
	fill(&c.MaxResponse, defaultMaxResponse)
	if !isToken(c.Header) {
		return fmt.Errorf("idemhttp: Config.Header: %q is not the name of a header field", c.Header)
	}
	if !isToken(c.ReplayedHeader) {
		return fmt.Errorf("idemhttp: Config.ReplayedHeader: %q is not the name of a header field", c.ReplayedHeader)
	}
	c.Header = http.CanonicalHeaderKey(c.Header)
	c.ReplayedHeader = http.CanonicalHeaderKey(c.ReplayedHeader)
	c.Methods = slices.Clone(c.Methods)
	if c.Methods == nil {
		c.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if c.Store == nil {
		c.Store = defaultStore
	}
	if c.Render == nil {
		c.Render = func(w http.ResponseWriter, r *http.Request, p *Problem) { p.ServeHTTP(w, r) }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Fingerprint == nil {
		c.Fingerprint = fingerprint(c.Without)
		if _, err := idem.HashJSON([]byte("null"), idem.Without(c.Without...)); err != nil {
			return fmt.Errorf("idemhttp: Config.Without: %w", err)
		}
	}
	return c.Statuses.setDefaults()
}

// isToken reports whether s is one as in RFC 9110, which methods and names of header fields are.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

func fill[T comparable](field *T, standard T) {
	if *field == *new(T) {
		*field = standard
	}
}

// options are what c says to idem.Do.
func (c *Config) options() []idem.Option {
	options := []idem.Option{idem.WithMaxResponse(c.MaxResponse), idem.WithTxOptions(c.TxOptions)}
	if c.TTL != 0 {
		options = append(options, idem.WithTTL(c.TTL))
	}
	if c.Wait != 0 {
		options = append(options, idem.WithWait(max(c.Wait, 0)))
	}
	if c.Retries != 0 {
		options = append(options, idem.WithRetries(max(c.Retries, 0)))
	}
	if c.Observer != nil {
		options = append(options, idem.WithObserver(c.Observer))
	}
	return options
}
