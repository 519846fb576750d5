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

// NewKey returns a random UUID. Make it before the first attempt and store it with what is to be done: then the same key
// is there when the call fails, and when the program has been restarted.
func NewKey() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40 // version 4
	b[8] = b[8]&0x3f | 0x80 // the variant of RFC 9562
	text := hex.EncodeToString(b[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// WithKey returns a context whose calls are sent under key, for any method but GET, HEAD, OPTIONS and TRACE. It is for one
// logical call: a second call with the same context is the same call, made again. A key in the header of the request goes
// before it.
func WithKey(ctx context.Context, key string) context.Context {
	return WithKeyMadeAt(ctx, key, time.Now())
}

// WithKeyMadeAt is WithKey for a key that was made earlier, for example by the run of the program that stored it. The age
// of the key counts from then. It says nothing of whether the key was sent: the first attempt is not numbered. It also
// gives an age to the same key in the header of a request.
func WithKeyMadeAt(ctx context.Context, key string, made time.Time) context.Context {
	return withKey(ctx, callKey{text: key, made: made})
}

// WithKeySentBefore is WithKeyMadeAt for a key that was sent before, or probably was: by a call that failed, or by a run of
// the program that ended before it had an answer. The first attempt then is numbered 2 (Idempotency-Attempt), and the
// server may look for the recorded answer first. If the key was not sent before, the server has looked in vain, and
// executes the request all the same.
func WithKeySentBefore(ctx context.Context, key string, made time.Time) context.Context {
	return withKey(ctx, callKey{text: key, made: made, sentBefore: true})
}

type inContext struct{}

func withKey(ctx context.Context, key callKey) context.Context {
	return context.WithValue(ctx, inContext{}, hiddenKey{func() callKey { return key }})
}

// givenKey is the key that the context of a request has, if it has one.
func givenKey(req *http.Request) (callKey, bool) {
	hidden, ok := req.Context().Value(inContext{}).(hiddenKey)
	if !ok {
		return callKey{}, false
	}
	return hidden.reveal(), true
}

// callKey is the key of a call.
type callKey struct {
	text       string    // what it says
	value      string    // how it is spelled in the header; empty if no key is sent
	made       time.Time // with the reading of the monotonic clock, if it was made in this process
	sentBefore bool      // the caller says that another call has sent it
	silent     bool      // the caller says that the request may be repeated without a key
}

// key finds or makes the key of a request. All requests of a call have the same, but for those that redirects have led to
// where it must not go.
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

// checkWritten returns an error if the caller has written a header that carries no key, or more than one: the request would be sent
// without protection, and the server could not say so.
func (t *Transport) checkWritten(header http.Header) error {
	canonical := t.keyHeader()
	for name, values := range header {
		switch {
		case http.CanonicalHeaderKey(name) != canonical, len(values) == 0:
		case name != canonical:
			return fmt.Errorf("the header has %q, spelled so that net/http does not find it: use Header.Set, which writes %s", name, canonical)
		case len(values) > 1:
			return fmt.Errorf("the header has %d values of %s", len(values), canonical)
		case strings.TrimSpace(values[0]) == "" || unquoted(values[0]) == "":
			return fmt.Errorf("the header has an empty %s", canonical)
		}
	}
	return nil
}

// writtenKey is the key of a request whose header has one. As with net/http, a header without any value says that the
// request may be repeated, and is not sent. http.Client copies the header of the first request to those that redirects
// lead to: where the key must not go, only another one counts, which CheckRedirect has written.
func writtenKey(values []string, given callKey, c *call, req *http.Request) callKey {
	if len(values) == 0 {
		return callKey{silent: true}
	}
	written := callKey{text: unquoted(values[0]), value: values[0], made: time.Now()}
	switch isCalls := c.key.text == written.text; {
	case c.leavesKeyBehind(req) && (isCalls || c.key.text == ""):
		return callKey{}
	case isCalls:
		written.made, written.sentBefore = c.key.made, c.key.sentBefore
	case given.text == written.text:
		written.made, written.sentBefore = given.made, given.sentBefore
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

func (k callKey) age() time.Duration { return k.ageAt(time.Now()) }

// ageAt is how long before now the key was made. The monotonic clock knows nothing of the time a machine has slept, and the
// wall clock may be set: the greater of the two is believed, because a key that is taken for older than it is does no harm.
func (k callKey) ageAt(now time.Time) time.Duration {
	return max(0, now.Sub(k.made), now.Round(0).Sub(k.made.Round(0)))
}

// abridged returns as much of the key as a log may carry, empty if there is none.
func (k callKey) abridged() string {
	if k.value == "" {
		return ""
	}
	return display.Key(k.text)
}
