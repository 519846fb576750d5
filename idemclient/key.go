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
// of the write. Then it is still there when the call fails, and after a restart of the program.
func NewKey() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40 // version 4
	b[8] = b[8]&0x3f | 0x80 // the variant of RFC 9562
	text := hex.EncodeToString(b[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// WithKey returns a context whose calls are sent with key, for any method but GET, HEAD, OPTIONS
// and TRACE. The context is for one logical call: a second call with it repeats the first. A key in
// the header of the request takes precedence.
func WithKey(ctx context.Context, key string) context.Context {
	return WithKeyMadeAt(ctx, key, time.Now())
}

// WithKeyMadeAt is WithKey for a key that was made earlier, for example by an earlier run of the
// program. The age of the key counts from made. WithKeyMadeAt does not say that the key was sent:
// the first attempt has no number. If the header of a request has the same key, made applies to
// that key as well.
func WithKeyMadeAt(ctx context.Context, key string, made time.Time) context.Context {
	return withKey(ctx, callKey{text: key, made: made})
}

// WithKeySentBefore is WithKeyMadeAt for a key that was, or may have been, sent before: by a failed
// call, or by a run of the program that ended without an answer. The first attempt then has the
// number 2 (Idempotency-Attempt), and the server may look for the recorded answer first. If there
// is none, the server executes the request as usual.
func WithKeySentBefore(ctx context.Context, key string, made time.Time) context.Context {
	return withKey(ctx, callKey{text: key, made: made, sentBefore: true})
}

type inContext struct{}

func withKey(ctx context.Context, key callKey) context.Context {
	return context.WithValue(ctx, inContext{}, hiddenKey{func() callKey { return key }})
}

// givenKey returns the key in the context of a request.
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

// key returns the key of a request. All requests of a call have the same key, except requests to
// hosts that must not get it.
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

// checkWritten returns an error if the caller has written the key header with no key in it, or with
// more than one. Such a request would be sent without protection, and the server could not detect
// it.
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
// value says that the request may be repeated, and is not sent. http.Client copies the header of
// the first request to redirected requests. So on a host that must not get the key, only a
// different key counts, which CheckRedirect must have written.
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

// spell returns a key as the value of a header field: quoted, or as it is if bare is set.
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

// ageAt returns the age of the key at now. The monotonic clock does not count the time that a
// machine was suspended, and the wall clock may be set. So ageAt returns the larger of both ages:
// to overestimate the age does no harm.
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

// hiddenKey holds a key that package fmt cannot print. fmt follows pointers with some verbs, but of
// a function it prints only the address.
type hiddenKey struct{ reveal func() callKey }

// key returns the whole key and when it was made, or "" if there is none.
func (h *hiddenKey) key() (string, time.Time) {
	if h == nil {
		return "", time.Time{}
	}
	k := h.reveal()
	return k.text, k.made
}
