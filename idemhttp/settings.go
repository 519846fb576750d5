package idemhttp

import (
	"cmp"
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

// settings is a checked Config with its defaults filled in.
type settings struct {
	config        Config
	filter        headerFilter
	problems      map[string]Problem
	options       []idem.Option // the options for idem.Do
	replayOptions []idem.Option // options and idem.WithReplayLikely, for a probable repetition
	doOptions     []idem.Option // the options for Operation.Do
	startOptions  []idem.Option // the options for the method Start of an operation
	source        txn.Source    // the source of transactions in Config.Through; nil if Through is not set
}

// settle fills in the defaults of c and checks it.
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
		config: c, filter: filter, problems: c.problems(), options: options,
		replayOptions: append(options, idem.WithReplayLikely()), doOptions: doOptions, startOptions: startOptions, source: source,
	}, nil
}

func (c *Config) setDefaults() {
	c.Header = http.CanonicalHeaderKey(cmp.Or(c.Header, "Idempotency-Key"))
	c.ReplayedHeader = http.CanonicalHeaderKey(cmp.Or(c.ReplayedHeader, "Idempotency-Replayed"))
	c.MaxBody = cmp.Or(c.MaxBody, defaultMaxBody)
	c.MaxResponse = cmp.Or(c.MaxResponse, idem.DefaultMaxResponse)
	c.Retries = cmp.Or(c.Retries, idem.DefaultRetries)
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
	c.Logger = cmp.Or(c.Logger, slog.Default())
}

// check returns an error for a field with an invalid value.
func (c *Config) check() error {
	switch {
	case c.Scope == nil:
		return errors.New("idemhttp: Config.Scope is required: callers that share a scope can get each other's answers")
	case c.Fingerprint != nil && len(c.Without) > 0:
		return errors.New("idemhttp: Config.Without applies only to the default Fingerprint, but Config.Fingerprint is set; use FingerprintWithout")
	case c.MaxBody < 0:
		return fmt.Errorf("idemhttp: Config.MaxBody: %d is negative", c.MaxBody)
	case len(c.Methods) == 0:
		return errors.New("idemhttp: Config.Methods is empty: no request would be protected")
	case !isToken(c.Header):
		return fmt.Errorf("idemhttp: Config.Header: %q is not the name of a header field", c.Header)
	case !isToken(c.ReplayedHeader):
		return fmt.Errorf("idemhttp: Config.ReplayedHeader: %q is not the name of a header field", c.ReplayedHeader)
	}
	for _, method := range c.Methods {
		if !isToken(method) || method != strings.ToUpper(method) {
			return fmt.Errorf("idemhttp: Config.Methods: %q is not a method in upper case", method)
		}
	}
	if _, err := idem.HashJSON([]byte("null"), idem.Without(c.Without...)); err != nil {
		return fmt.Errorf("idemhttp: Config.Without: %w", err)
	}
	return nil
}

// options returns the fields of c as options of idem.Do. The result startOptions has only the
// options that the method Start of an operation accepts. An option that idem.CheckOptions rejects
// is an error.
func (c *Config) options() (options, startOptions []idem.Option, err error) {
	fields := []struct {
		name   string
		set    bool
		doOnly bool
		option idem.Option
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
		if !field.set {
			continue
		}
		options = append(options, field.option)
		if !field.doOnly {
			startOptions = append(startOptions, field.option)
		}
		if err := idem.CheckOptions(options...); err != nil { // the last option is invalid, or contradicts an earlier one
			return nil, nil, fmt.Errorf("idemhttp: Config.%s: %w", field.name, err)
		}
	}
	return slices.Clip(options), slices.Clip(startOptions), nil
}

// isToken reports whether s is a token of RFC 9110, as methods and names of header fields must be.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}
