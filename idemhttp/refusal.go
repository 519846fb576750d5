package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyheader"
)

// refuse answers with the problem that err stands for.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := m.problem(err)
	if p.status() >= http.StatusInternalServerError {
		m.log(r, p, err)
	}
	m.config.Render(w, r, p)
}

// log tells the cause of a problem that is not the client's. That a client has gone is none.
func (m *Middleware) log(r *http.Request, p *Problem, err error) {
	ctx := r.Context()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		m.config.Logger.DebugContext(ctx, "the client has gone", "method", r.Method, "path", r.URL.Path, "error", err)
		return
	}
	m.config.Logger.ErrorContext(ctx, "request failed", "method", r.Method, "path", r.URL.Path, "problem", p.Type, "error", err)
}

// forbidden is the refusal by Config.Scope or Config.Authorize. Whether anything was done for the key stays unsaid.
type forbidden struct{ error }

func (f forbidden) Unwrap() error { return f.error }

// problem turns an error into what the client needs to know: above all, whether to try again and with which key. The
// texts never quote the error.
func (m *Middleware) problem(err error) *Problem {
	statuses := &m.config.Statuses
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if busy, ok := errors.AsType[*idem.InProgressError](err); ok {
		return &Problem{Type: TypeInProgress, Title: "The first request with this key is still running", Status: statuses.InProgress,
			Retryable: true, RetryAfter: busy.RetryAfter}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &Problem{Type: TypeBodyTooLarge, Title: "The body of the request is too large", Status: statuses.BodyTooLarge, SafeNewKey: true}
	}
	if p := m.problemOfRequest(err); p != nil {
		return p
	}
	return m.problemOfServer(err)
}

// problemOfRequest is the problem if the request is at fault, or nil.
func (m *Middleware) problemOfRequest(err error) *Problem {
	statuses := &m.config.Statuses
	switch {
	case errors.Is(err, keyheader.ErrMissing):
		return &Problem{Type: TypeMissingKey, Title: "The header " + m.config.Header + " is missing", Status: statuses.MissingKey,
			Detail: "Make a random key for this request, and send the same key whenever you repeat it.", SafeNewKey: true}
	case errors.Is(err, keyheader.ErrSeveral):
		return m.invalidKey("There is more than one key.")
	case errors.Is(err, keyheader.ErrMalformed):
		return m.invalidKey("A key is one string, in quotes or without.")
	case errors.Is(err, idem.ErrInvalidKey):
		return m.invalidKey("A key has 1 to 255 characters.")
	case errors.Is(err, idem.ErrMismatch):
		return &Problem{Type: TypeKeyReused, Title: "This key belongs to a different request", Status: statuses.KeyReused,
			Detail: "Nothing was done. A new request needs a new key.", SafeNewKey: true}
	case errors.Is(err, idem.ErrInvalidJSON):
		return &Problem{Type: TypeInvalidJSON, Title: "The body is not one JSON document that all readers understand alike",
			Status: http.StatusBadRequest, SafeNewKey: true}
	case errors.Is(err, errBody):
		return &Problem{Type: TypeBodyUnreadable, Title: "The body of the request did not arrive as a whole",
			Status: http.StatusBadRequest, Retryable: true}
	}
	return nil
}

func (m *Middleware) invalidKey(detail string) *Problem {
	return &Problem{Type: TypeInvalidKey, Title: "The header " + m.config.Header + " is not one valid key",
		Status: m.config.Statuses.InvalidKey, Detail: detail, SafeNewKey: true}
}

// problemOfServer is the problem if something went wrong on this side.
func (m *Middleware) problemOfServer(err error) *Problem {
	statuses := &m.config.Statuses
	switch {
	case errors.Is(err, errUnknownWithoutKey):
		return &Problem{Type: TypeOutcomeUnknown, Title: "It is not known whether this was done", Status: statuses.Unavailable,
			Detail: "The request had no key, so to repeat it may do it twice."}
	case errors.Is(err, idem.ErrOutcomeUnknown):
		return &Problem{Type: TypeOutcomeUnknown, Title: "It is not known whether this was done", Status: statuses.Unavailable,
			Detail: "The same request with the same key will tell.", Retryable: true, RetryAfter: time.Second}
	case errors.Is(err, idem.ErrTxEnded), errors.Is(err, idem.ErrTxAborted):
		return &Problem{Type: TypeBrokenTx, Title: "Something is wrong with this service", Status: http.StatusInternalServerError}
	case errors.Is(err, idem.ErrResponseTooLarge), errors.Is(err, idem.ErrInvalidResponse), errors.Is(err, ErrUnrecordable):
		return &Problem{Type: TypeUnrecordable, Title: "The answer could not be recorded, so nothing was done",
			Status: http.StatusInternalServerError, SafeNewKey: true}
	case idem.Retryable(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Problem{Type: TypeUnavailable, Title: "The service is not available now", Status: statuses.Unavailable,
			Detail: "Nothing was done by this request. Repeat it, with the same key if it has one.", Retryable: true, RetryAfter: time.Second}
	}
	if _, ok := errors.AsType[forbidden](err); ok {
		return &Problem{Type: TypeForbidden, Title: "This is not yours to ask for", Status: statuses.Forbidden}
	}
	return &Problem{Type: TypeInternal, Title: "Something is wrong with this service", Status: http.StatusInternalServerError,
		Retryable: true}
}
