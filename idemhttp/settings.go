package idemhttp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/txn"
)

var idemCalls = bridge.Get[idem.Option, idem.Result]()

const (
	defaultHeader   = "Idempotency-Key"
	defaultReplayed = "Idempotency-Replayed"
)

// settings are a Config that was checked and completed.
type settings struct {
	config        Config
	filter        *headerFilter
	options       []idem.Option // for idem.Do
	replayOptions []idem.Option // for idem.Do, if the request is likely to be a repetition
	doOptions     []idem.Option // for the Do of an operation
	startOptions  []idem.Option // for the Start of an operation
	source        txn.Source    // of Config.Through, nil without one
}

// settle is the one place where a Config is checked and its defaults are filled in.
func (c Config) settle() (settings, error) {
	c.setDefaults()
	doOptions, startOptions, err := c.options()
	if err == nil {
		err = c.check()
	}
	options := doOptions
	var source txn.Source
	if err == nil && c.Through != nil {
		options = slices.Clip(append(doOptions, c.Through))
		if source, err = idemCalls.Source(options); err != nil {
			err = fmt.Errorf("idemhttp: Config.Through: %w", err)
		}
	}
	if err == nil {
		err = c.Statuses.settle()
	}
	if err != nil {
		return settings{}, err
	}
	filter, err := newHeaderFilter(c.RecordHeader, c.ReplayedHeader)
	if err != nil {
		return settings{}, err
	}
	if c.Fingerprint == nil {
		c.Fingerprint = fingerprint(c.Without)
	}
	return settings{
		config: c, filter: filter, options: options,
		replayOptions: append(options, idem.WithReplayLikely()), doOptions: doOptions, startOptions: startOptions, source: source,
	}, nil
}

func (c *Config) setDefaults() {
	fill(&c.Header, defaultHeader)
	fill(&c.ReplayedHeader, defaultReplayed)
	fill(&c.MaxBody, defaultMaxBody)
	fill(&c.MaxResponse, idem.DefaultMaxResponse)
	fill(&c.Retries, idem.DefaultRetries)
	c.Header = http.CanonicalHeaderKey(c.Header)
	c.ReplayedHeader = http.CanonicalHeaderKey(c.ReplayedHeader)
	c.Methods = slices.Clone(c.Methods)
	if c.Methods == nil {
		c.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if c.Decide == nil {
		c.Decide = defaultDecide
	}
	if c.Render == nil {
		c.Render = func(w http.ResponseWriter, r *http.Request, p *Problem) { p.ServeHTTP(w, r) }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// check refuses what cannot be meant.
func (c *Config) check() error {
	switch {
	case c.Scope == nil:
		return errors.New("idemhttp: Config.Scope is required: a scope that callers share leaks the answer of one to another")
	case c.Fingerprint != nil && len(c.Without) > 0:
		return errors.New("idemhttp: Config.Without is for the default Fingerprint, and there is another")
	case c.MaxBody < 0:
		return fmt.Errorf("idemhttp: Config.MaxBody: %d is negative", c.MaxBody)
	case len(c.Methods) == 0:
		return errors.New("idemhttp: Config.Methods is empty: nothing would be protected")
	case !isToken(c.Header):
		return fmt.Errorf("idemhttp: Config.Header: %q is not the name of a header field", c.Header)
	case !isToken(c.ReplayedHeader):
		return fmt.Errorf("idemhttp: Config.ReplayedHeader: %q is not the name of a header field", c.ReplayedHeader)
	}
	for _, method := range c.Methods {
		if !isToken(method) || method != strings.ToUpper(method) {
			return fmt.Errorf("idemhttp: Config.Methods: there is no method %q", method)
		}
	}
	if _, err := idem.HashJSON([]byte("null"), idem.Without(c.Without...)); err != nil {
		return fmt.Errorf("idemhttp: Config.Without: %w", err)
	}
	return nil
}

// options are what the Config says to idem.Do, which knows what it can mean, and those of them that are not for Do alone.
func (c *Config) options() (options, notForDoAlone []idem.Option, err error) {
	fields := []struct {
		name    string
		given   bool
		doAlone bool
		option  idem.Option
	}{
		{"MaxResponse", true, false, idem.WithMaxResponse(c.MaxResponse)},
		{"TxOptions", true, true, idem.WithTxOptions(c.TxOptions)},
		{"TTL", c.TTL != 0, false, idem.WithTTL(c.TTL)},
		{"Wait", c.Wait != 0, true, idem.WithWait(max(c.Wait, 0))},
		{"Retries", true, true, idem.WithRetries(max(c.Retries, 0))},
		{"Name", c.Name != "", false, idem.WithName(c.Name)},
		{"Observer", c.Observer != nil, false, idem.WithObserver(c.Observer)},
		{"Sealer", c.Sealer != nil, false, idem.WithSealer(c.Sealer)},
	}
	for _, field := range fields {
		if !field.given {
			continue
		}
		options = append(options, field.option)
		if !field.doAlone {
			notForDoAlone = append(notForDoAlone, field.option)
		}
		if err := idem.CheckOptions(options...); err != nil { // the latest is at fault, alone or beside the others
			return nil, nil, fmt.Errorf("idemhttp: Config.%s: %w", field.name, err)
		}
	}
	return slices.Clip(options), slices.Clip(notForDoAlone), nil
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
