package idemclient

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/display"
)

// NewKey returns a random UUID. Make the key before the first attempt, and store it with the data
// of the write. Then the key is still known after a failed call or a restart of the program.
func NewKey() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40 // version 4
	b[8] = b[8]&0x3f | 0x80 // the variant of RFC 9562
	text := hex.EncodeToString(b[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// WithKey returns a context for a call that is sent with the given key. The key is not sent with
// the methods GET, HEAD, OPTIONS and TRACE. Use the context for one logical call only: a second
// call with the same context is a repetition of the first call. A key in the header of the request
// takes precedence.
func WithKey(ctx context.Context, key string) context.Context {
	return WithKeyMadeAt(ctx, key, time.Now())
}

// WithKeyMadeAt is WithKey for a key that was made earlier, for example by an earlier run of the
// program. The argument made is the time from which the age of the key counts. The key counts as
// not sent before, so the first attempt has no number in its header. If the header of a request has
// the same key, the age of the key in the header counts from the same time.
func WithKeyMadeAt(ctx context.Context, key string, made time.Time) context.Context {
	return withKey(ctx, callKey{text: key, made: made})
}

// WithKeySentBefore is WithKeyMadeAt for a key that may have been sent before: by a failed call, or
// by a run of the program that ended without an answer. The first attempt then has the number 2
// (Idempotency-Attempt), and the server may look for a recorded answer first. If the server finds
// no recorded answer, it executes the request as usual.
func WithKeySentBefore(ctx context.Context, key string, made time.Time) context.Context {
	return withKey(ctx, callKey{text: key, made: made, sentBefore: true})
}

type inContext struct{}

func withKey(ctx context.Context, key callKey) context.Context {
	return context.WithValue(ctx, inContext{}, hiddenKey{func() callKey { return key }})
}

// givenKey returns the key that WithKey has put into the context of a request.
func givenKey(req *http.Request) (callKey, bool) {
	hidden, ok := req.Context().Value(inContext{}).(hiddenKey)
	if !ok {
		return callKey{}, false
	}
	return hidden.reveal(), true
}

// callKey is the key of a call.
type callKey struct {
	text       string    // the key itself
	value      string    // the value of the header field; empty if no key is sent
	made       time.Time // has a monotonic reading if the key was made in this process
	sentBefore bool      // the caller says that an earlier call has sent the key
	silent     bool      // the caller says that the request may be repeated without a key
}

// key returns the key of a request. All requests of a call have the same key. After a redirect to a
// host that must not get the key, the key is empty.
func (t *Transport) key(req *http.Request, c *call) (callKey, error) {
	given, isGiven := givenKey(req)
	values, isWritten := req.Header[t.keyHeader()]
	if err := t.checkWritten(req.Header); err != nil {
		return callKey{}, err
	}
	switch {
	case isWritten:
		return writtenKey(values, given, c, req), nil
	case isSafe(req.Method), c.strayed:
		return callKey{}, nil
	case c.key.value != "":
		return c.key, nil
	case isGiven:
	case t.makesKeyFor(method(req)):
		given = callKey{text: NewKey(), made: time.Now()}
	default:
		return callKey{}, nil
	}
	var err error
	given.value, err = spell(given.text, t.BareKey)
	return given, err
}

// checkWritten returns an error if the caller has set the header of the key in an unusable way:
// with an empty key, with several keys, or under a name that net/http does not find. Otherwise the
// request might be sent without a key, and the server could not detect the mistake.
func (t *Transport) checkWritten(header http.Header) error {
	canonical := t.keyHeader()
	for name, values := range header {
		switch {
		case http.CanonicalHeaderKey(name) != canonical, len(values) == 0:
		case name != canonical:
			return fmt.Errorf("the header has %q, a spelling that net/http does not find; use Header.Set, which writes %s", name, canonical)
		case len(values) > 1:
			return fmt.Errorf("the header has %d values of %s", len(values), canonical)
		case strings.TrimSpace(values[0]) == "" || unquoted(values[0]) == "":
			return fmt.Errorf("the header has an empty %s", canonical)
		}
	}
	return nil
}

// writtenKey returns the key in the header of a request. As in net/http, a header field without any
// value means that the request may be repeated without a key. http.Client copies the header of the
// first request to redirected requests. So for a host that must not get the key of the call,
// writtenKey ignores a copy of this key. It returns only a different key, because CheckRedirect
// must have written it.
func writtenKey(values []string, given callKey, c *call, req *http.Request) callKey {
	if len(values) == 0 {
		return callKey{silent: true}
	}
	written := callKey{text: unquoted(values[0]), value: values[0], made: time.Now()}
	switch isCallKey := c.key.text == written.text; {
	case c.leavesKeyBehind(req) && (isCallKey || c.key.text == ""):
		return callKey{}
	case isCallKey:
		written.made, written.sentBefore = c.key.made, c.key.sentBefore
	case given.text == written.text:
		written.made, written.sentBefore = given.made, given.sentBefore
	}
	return written
}

// maxKey is the maximum length of a key.
const maxKey = 255

// spell returns the value of the header field for a key: without quotes if bare is true, and
// otherwise in quotes.
func spell(text string, bare bool) (string, error) {
	switch {
	case text == "":
		return "", errors.New("the key is empty")
	case len(text) > maxKey:
		return "", fmt.Errorf("the key has %d bytes; the limit is %d", len(text), maxKey)
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~':
			return "", fmt.Errorf("byte %d of the key is not printable ASCII", i)
		case bare && strings.IndexByte(` ",;\`, c) >= 0:
			return "", fmt.Errorf("byte %d of the key cannot be sent without quotes, as BareKey requires", i)
		}
	}
	if bare {
		return text, nil
	}
	return `"` + escape.Replace(text) + `"`, nil
}

var (
	escape   = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`)
)

func unquoted(value string) string {
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		return unescape.Replace(value[1 : len(value)-1])
	}
	return value
}

func (k callKey) age() time.Duration { return k.ageAt(time.Now()) }

// ageAt returns the age of the key at the time now. The monotonic clock does not count the time
// that a machine was suspended, and the wall clock may be set. So ageAt computes the age with both
// clocks and returns the larger value. An age that is too large does no harm.
func (k callKey) ageAt(now time.Time) time.Duration {
	return max(0, now.Sub(k.made), now.Round(0).Sub(k.made.Round(0)))
}

// abridged returns the part of the key that may be logged, or "" if there is no key.
func (k callKey) abridged() string {
	if k.value == "" {
		return ""
	}
	return display.Key(k.text)
}

// hiddenKey stores a key in such a way that package fmt cannot print it. With some verbs, fmt
// prints the value behind a pointer, but it prints only the address of a function. So the key is
// the result of a function.
type hiddenKey struct{ reveal func() callKey }

// key returns the whole key and the time at which it was made, or "" if there is no key.
func (h *hiddenKey) key() (string, time.Time) {
	if h == nil {
		return "", time.Time{}
	}
	k := h.reveal()
	return k.text, k.made
}
