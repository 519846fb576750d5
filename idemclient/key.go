package idemclient

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// NewKey returns a random UUID. A caller that must survive its own crash makes the key first, stores it with what it
// intends to do, and calls with WithKeyMadeAt.
func NewKey() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40 // version 4
	b[8] = b[8]&0x3f | 0x80 // the variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// WithKey returns a context whose calls are sent under key, for any method but GET, HEAD, OPTIONS and TRACE. It belongs to
// one logical call: a context that is used for the next one as well says that this is the same. An Idempotency-Key that the
// request has already goes first.
func WithKey(ctx context.Context, key string) context.Context {
	return WithKeyMadeAt(ctx, key, time.Now())
}

// WithKeyMadeAt is WithKey for a key that was made, and may have been used, earlier: by another process, or before a
// crash. Its age counts from then. It also gives an age to the same key in the header of a request.
func WithKeyMadeAt(ctx context.Context, key string, made time.Time) context.Context {
	return context.WithValue(ctx, givenKey{}, callKey{text: key, made: made})
}

type givenKey struct{}

// callKey is the key of a call.
type callKey struct {
	text   string    // what it says
	value  string    // how it is spelled in the header; empty if no key is sent
	made   time.Time // with the reading of the monotonic clock, if it was made in this process
	silent bool      // the caller vouches for the request without a key
}

// key finds or makes the key of a request. Those of one logical call, of which before is the previous request if it was
// redirected, have the same.
func (t *Transport) key(req *http.Request, before *call) (callKey, error) {
	given, isGiven := req.Context().Value(givenKey{}).(callKey)
	if values, ok := req.Header[t.keyHeader()]; ok {
		return writtenKey(values, given, before), nil
	}
	switch {
	case isSafe(req.Method):
		return callKey{}, nil
	case before != nil && before.key.value != "":
		return before.key, nil
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

// writtenKey is the key of a request whose header has one. As with net/http, a header without any value says that the
// request may be repeated, and is not sent.
func writtenKey(values []string, given callKey, before *call) callKey {
	if len(values) == 0 {
		return callKey{silent: true}
	}
	written := callKey{text: unquoted(values[0]), value: values[0], made: time.Now()}
	switch {
	case before != nil && before.key.text == written.text:
		written.made = before.key.made
	case given.text == written.text:
		written.made = given.made
	}
	return written
}

const maxKey = 255

// spell writes a key as the value of a header.
func spell(text string, bare bool) (string, error) {
	switch {
	case text == "":
		return "", errors.New("it is empty")
	case len(text) > maxKey:
		return "", fmt.Errorf("it has %d bytes, the limit is %d", len(text), maxKey)
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~':
			return "", fmt.Errorf("byte %d is not printable ASCII", i)
		case bare && strings.IndexByte(` ",;\`, c) >= 0:
			return "", fmt.Errorf("byte %d cannot be sent without quotes", i)
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

// age is how long ago the key was made. The monotonic clock knows nothing of the time a machine has slept, and the wall
// clock may be set: the greater of the two is believed, because a key that is taken for older than it is does no harm.
func (k callKey) age() time.Duration {
	now := time.Now()
	return max(0, now.Sub(k.made), now.Round(0).Sub(k.made.Round(0)))
}

// abridged returns as much of the key as a log may carry.
func (k callKey) abridged() string {
	const shown = 4
	switch {
	case k.value == "":
		return ""
	case len(k.text) < 4*shown:
		return fmt.Sprintf("key of %d bytes", len(k.text))
	}
	return fmt.Sprintf("key %q… of %d bytes", k.text[:shown], len(k.text))
}
