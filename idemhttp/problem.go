package idemhttp

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// problemBase is where the types of problems are documented. A type never changes.
const problemBase = "https://github.com/idem-go/idem/blob/main/docs/http-reference.md#"

// The types of the problems that this package makes.
const (
	TypeMissingKey      = problemBase + "missing-key"
	TypeInvalidKey      = problemBase + "invalid-key"
	TypeKeyReused       = problemBase + "key-reused"
	TypeInProgress      = problemBase + "in-progress"
	TypeForbidden       = problemBase + "forbidden"
	TypeBodyTooLarge    = problemBase + "body-too-large"
	TypeBodyUnreadable  = problemBase + "body-unreadable"
	TypeInvalidJSON     = problemBase + "invalid-json"
	TypeProtocol        = problemBase + "protocol"
	TypeUnavailable     = problemBase + "unavailable"
	TypeOutcomeUnknown  = problemBase + "outcome-unknown"
	TypeInternal        = problemBase + "internal"
	TypeUnrecordable    = problemBase + "unrecordable"
	TypeUnreadable      = problemBase + "unreadable"
	TypeBrokenTx        = problemBase + "broken-transaction"
	TypeNoSuchKey       = problemBase + "no-such-key"
	TypeNoSuchOperation = problemBase + "no-such-operation"
	TypeGetOnly         = problemBase + "get-only"
)

// Problem is an answer that says no, in the form of RFC 9457. Programs branch on Type; the texts are for people.
//
// A handler under [Middleware.Handle] may return one as its error: the handler's writes are undone, and the problem is the
// answer, which is remembered unless Config.Decide says Forget of its status. Retryable and SafeNewKey are set accordingly.
// Config.Scope, Config.Fingerprint and Config.Authorize may return one as well, and it is sent as it is.
type Problem struct {
	Type     string `json:"type,omitempty"`
	Title    string `json:"title,omitempty"`
	Status   int    `json:"status"` // 0 is 500
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"`

	// Retryable says that the same request, with the same key, may have another answer later.
	Retryable bool `json:"retryable"`

	// SafeNewKey says that nothing was done for the request, so that to send it with a new key does nothing twice.
	SafeNewKey bool `json:"safe_new_key"`

	RetryAfter time.Duration `json:"-"` // sent as the header Retry-After, in whole seconds, rounded up
	Header     http.Header   `json:"-"` // further header fields, such as WWW-Authenticate
}

func (p *Problem) Error() string {
	switch {
	case p == nil:
		return "idemhttp: an error that is a nil *Problem"
	case p.Detail == "":
		return p.Title
	}
	return p.Title + ": " + p.Detail
}

// problemIn returns the Problem that an error is, or wraps. It is nil if a function has returned a nil *Problem as an error.
func problemIn(err error) (p *Problem, said bool) { return errors.AsType[*Problem](err) }

// ServeHTTP writes the problem. It is what Config.Render does by default.
func (p *Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	sent := *p
	sent.Status = p.status()
	p.send(w, "application/problem+json", &sent)
}

// send writes the problem with a body of this media type.
func (p *Problem) send(w http.ResponseWriter, mediaType string, said any) {
	body, err := json.Marshal(said)
	if err != nil {
		panic(err) // no field can fail
	}
	header := w.Header()
	setFields(header, p.Header)
	header.Set("Content-Type", mediaType)
	if p.RetryAfter > 0 {
		header.Set("Retry-After", wholeSeconds(p.RetryAfter))
	}
	w.WriteHeader(p.status())
	_, _ = w.Write(append(body, '\n')) // if this fails, the client has gone
}

func (p *Problem) status() int {
	if p.Status == 0 {
		return http.StatusInternalServerError
	}
	return p.Status
}

// wholeSeconds rounds up: a client must not come back too early.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
