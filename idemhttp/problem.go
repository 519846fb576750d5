package idemhttp

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// problemBase is the URL of the documentation of problem types. Every type is this URL plus a name,
// and never changes.
const problemBase = "https://github.com/idem-go/idem/blob/main/docs/http-reference.md#"

// The types of the problems of this package.
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

// Problem is an error response in the format of RFC 9457. Type is for programs; Title and Detail
// are for people.
//
// A handler under [Middleware.Handle] may return a *Problem as its error. The writes of the handler
// are then rolled back, and the problem is the answer. The answer is recorded unless Config.Decide
// returns Forget for its status. Handle sets Retryable to true if the answer is not recorded, and
// always sets SafeNewKey to true. Config.Scope, Config.Fingerprint and Config.Authorize may also
// return a *Problem, which is sent unchanged.
type Problem struct {
	Type     string `json:"type,omitempty"`
	Title    string `json:"title,omitempty"`
	Status   int    `json:"status"` // 0 means 500
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"`

	// Retryable says that the same request, with the same key, may get another answer later.
	Retryable bool `json:"retryable"`

	// SafeNewKey says that nothing was done for the request, so that a repetition with a new key
	// does nothing twice.
	SafeNewKey bool `json:"safe_new_key"`

	RetryAfter time.Duration `json:"-"` // sent as the header Retry-After, in whole seconds, rounded up
	Header     http.Header   `json:"-"` // further header fields, such as WWW-Authenticate
}

func (p *Problem) Error() string {
	switch {
	case p == nil:
		return "idemhttp: the error is a nil *Problem"
	case p.Detail == "":
		return p.Title
	}
	return p.Title + ": " + p.Detail
}

// problemIn returns the *Problem in err, and whether err has one. If a function has returned a nil
// *Problem as its error, p is nil and ok is true.
func problemIn(err error) (p *Problem, ok bool) { return errors.AsType[*Problem](err) }

// ServeHTTP writes the problem. It is the default of Config.Render.
func (p *Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	sent := *p
	sent.Status = p.status()
	p.send(w, "application/problem+json", &sent)
}

// send writes the problem with document as its JSON body.
func (p *Problem) send(w http.ResponseWriter, mediaType string, document any) {
	setFields(w.Header(), p.Header)
	sendJSON(w, p.status(), mediaType, p.RetryAfter, document)
}

// sendJSON answers with a JSON document. It sets the header Retry-After unless retryAfter is 0.
func sendJSON(w http.ResponseWriter, status int, mediaType string, retryAfter time.Duration, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		panic(err) // cannot happen: every field can be encoded
	}
	w.Header().Set("Content-Type", mediaType)
	if retryAfter > 0 {
		w.Header().Set("Retry-After", wholeSeconds(retryAfter))
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has gone
}

func (p *Problem) status() int {
	if p.Status == 0 {
		return http.StatusInternalServerError
	}
	return p.Status
}

// wholeSeconds returns a duration in seconds, rounded up so that a client does not retry too early.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
