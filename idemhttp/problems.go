package idemhttp

import (
	"net/http"
	"time"
)

// problems returns a template for each problem type. The templates have no Type, because newProblem
// sets it.
func (c *Config) problems() map[string]Problem {
	const internal = "Internal error of this service"
	s := &c.Statuses
	return map[string]Problem{
		TypeMissingKey: {Title: "The header " + c.Header + " is missing", Status: s.MissingKey, SafeNewKey: true,
			Detail: "Create a random key for this request, and send the same key whenever you repeat it."},
		TypeInvalidKey: {Title: "The header " + c.Header + " is not one valid key", Status: s.InvalidKey, SafeNewKey: true,
			Detail: "A key is one string, with or without quotes."},
		TypeKeyReused: {Title: "This key belongs to a different request", Status: s.KeyReused, SafeNewKey: true,
			Detail: "Nothing was done. A new request needs a new key."},
		TypeInProgress:   {Title: "The first request with this key is still running", Status: s.InProgress, Retryable: true},
		TypeForbidden:    {Title: "Access to this is not allowed", Status: s.Forbidden},
		TypeBodyTooLarge: {Title: "The body of the request is too large", Status: s.BodyTooLarge, SafeNewKey: true},
		TypeBodyUnreadable: {Title: "The body of the request is incomplete", Status: http.StatusBadRequest,
			Retryable: true},
		TypeInvalidJSON: {Title: "The body is not one JSON document with a unique meaning", Status: http.StatusBadRequest,
			SafeNewKey: true},
		TypeProtocol: {Title: "gRPC is not served here", Status: http.StatusUnsupportedMediaType,
			Detail: "Nothing was done. The service must use an interceptor for its gRPC methods."},
		TypeUnavailable: {Title: "The service is not available now", Status: s.Unavailable, Retryable: true, RetryAfter: time.Second,
			Detail: "Nothing was committed by this request. Repeat it, with the same key if it has one."},
		TypeOutcomeUnknown: {Title: "The outcome of this request is unknown", Status: s.Unavailable, Retryable: true,
			RetryAfter: time.Second, Detail: "The same request with the same key will tell."},
		TypeInternal: {Title: internal, Status: http.StatusInternalServerError, Retryable: true},
		TypeBrokenTx: {Title: internal, Status: http.StatusInternalServerError},
		TypeUnrecordable: {Title: "The answer could not be recorded, so nothing was done", Status: http.StatusInternalServerError,
			SafeNewKey: true},
		TypeUnreadable: {Title: "The recorded answer cannot be read now", Status: http.StatusInternalServerError, Retryable: true,
			Detail: "The request was executed before, and nothing was done again. With a new key it would be executed twice."},
		TypeNoSuchKey:       {Title: "This key is not in use", Status: http.StatusNotFound},
		TypeNoSuchOperation: {Title: "There is no such operation", Status: http.StatusNotFound},
		TypeGetOnly: {Title: "Status can be read only with GET or HEAD", Status: http.StatusMethodNotAllowed,
			Header: http.Header{"Allow": {"GET, HEAD"}}},
	}
}

// newProblem returns a copy of the template for a problem type, so that Config.Render may change
// it.
func (m *Middleware) newProblem(kind string) *Problem {
	p := m.problems[kind]
	p.Type, p.Header = kind, p.Header.Clone()
	return &p
}
