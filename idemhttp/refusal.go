package idemhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyheader"
)

// refuse answers with the problem that belongs to a failure. It logs the failure unless it is the
// client's fault.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, f *failure) {
	p := m.problem(f)
	if p.isServerFault() {
		m.log(r, p, f)
	}
	m.config.Render(w, r, p)
}

// isServerFault reports whether the cause is in the service. The status alone does not say, because
// Config.Statuses may change it.
func (p *Problem) isServerFault() bool {
	return p.status() >= http.StatusInternalServerError || p.Type == TypeUnavailable || p.Type == TypeProtocol || p.Type == TypeOutcomeUnknown
}

// log logs the cause of a problem. That a client has gone is not an error of the service.
func (m *Middleware) log(r *http.Request, p *Problem, f *failure) {
	ctx := r.Context()
	if ctx.Err() != nil && errors.Is(f.err, context.Canceled) {
		m.config.Logger.DebugContext(ctx, "the client has gone", "method", r.Method, "path", r.URL.Path, "error", f.err)
		return
	}
	m.config.Logger.ErrorContext(ctx, "request failed",
		"method", r.Method, "path", r.URL.Path, "problem", p.Type, "in", string(f.origin), "error", f.err)
}

// problem returns the problem for a failure. The client needs to know above all whether to retry,
// and with which key. The texts never quote the error.
func (m *Middleware) problem(f *failure) *Problem {
	switch f.origin {
	case inKey:
		return m.problemOfKey(f.err)
	case inBody:
		return m.problemOfBody(f.err)
	case inScope, inAuthorize:
		return m.problemOfHook(f.err, m.forbidden())
	case inFingerprint:
		return m.problemOfFingerprint(f.err)
	case inInput, inOperation:
		return m.problemOfHook(f.err, internal())
	case inProtocol:
		return protocol()
	case inHandler:
		return m.problemOfHandler(f.err)
	case inAnswer:
		return unrecordable()
	case inEngine:
		return m.problemOfEngine(f.err)
	}
	return internal()
}

// problemOfHook returns the problem for an error of a function of the Config: the *Problem in the
// error if there is one, unavailable if the error is transient, and otherwise fallback.
func (m *Middleware) problemOfHook(err error, fallback *Problem) *Problem {
	p, isProblem := problemIn(err)
	switch {
	case isProblem && p == nil:
		return internal()
	case isProblem:
		return p
	case transient(err):
		return m.unavailable()
	}
	return fallback
}

func (m *Middleware) problemOfFingerprint(err error) *Problem {
	if errors.Is(err, idem.ErrInvalidJSON) {
		return m.problemOfHook(err, invalidJSON())
	}
	return m.problemOfHook(err, internal())
}

// problemOfHandler returns the problem for an error of a handler that is not a *Problem.
func (m *Middleware) problemOfHandler(err error) *Problem {
	if transient(err) {
		return m.unavailable()
	}
	return internal()
}

// problemOfEngine returns the problem for an error of idem.Do itself. Only such an error can be the
// client's fault.
func (m *Middleware) problemOfEngine(err error) *Problem {
	if f, ok := errors.AsType[*failure](err); ok {
		return m.problemAround(f, err)
	}
	if busy, ok := errors.AsType[*idem.InProgressError](err); ok {
		return m.inProgress(busy.RetryAfter)
	}
	switch {
	case errors.Is(err, idem.ErrInvalidKey):
		return m.invalidKey("A key has 1 to 255 characters.")
	case errors.Is(err, idem.ErrMismatch):
		return m.keyReused()
	case errors.Is(err, errUnknownWithoutKey):
		return m.outcomeUnknown("The request had no key, so to repeat it may do it twice.", false)
	case errors.Is(err, idem.ErrOutcomeUnknown):
		return m.outcomeUnknown("The same request with the same key will tell.", true)
	case errors.Is(err, idem.ErrTxEnded), errors.Is(err, idem.ErrTxAborted):
		return brokenTx()
	case errors.Is(err, idem.ErrUnreadable):
		return unreadable()
	case errors.Is(err, idem.ErrResponseTooLarge), errors.Is(err, idem.ErrInvalidResponse):
		return unrecordable()
	case transient(err):
		return m.unavailable()
	}
	return internal()
}

// problemAround returns the problem for an error of idem.Do that wraps a failure of the handler,
// usually because the handler has ended the transaction.
func (m *Middleware) problemAround(f *failure, err error) *Problem {
	if errors.Is(err, idem.ErrTxEnded) || errors.Is(err, idem.ErrTxAborted) {
		return brokenTx()
	}
	return m.problem(f)
}

// transient reports whether err may be gone at the next attempt: an error of the database, a full
// process, or the end of the time for the request.
func transient(err error) bool {
	return idem.Retryable(err) || errors.Is(err, errFull) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func (m *Middleware) problemOfKey(err error) *Problem {
	switch {
	case errors.Is(err, keyheader.ErrMissing):
		return m.missingKey()
	case errors.Is(err, keyheader.ErrSeveral):
		return m.invalidKey("There is more than one key.")
	}
	return m.invalidKey("A key is one string, with or without quotes.")
}

func (m *Middleware) problemOfBody(err error) *Problem {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return m.bodyTooLarge()
	}
	if errors.Is(err, errConsumed) {
		return internal()
	}
	return bodyUnreadable()
}
