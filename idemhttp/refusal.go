package idemhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyheader"
)

// refuse answers with the problem that a failure is for the client.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, f *failure) {
	p := m.problem(f)
	if p.isOurs() {
		m.log(r, p, f)
	}
	m.config.Render(w, r, p)
}

// isOurs reports whether the cause of the problem is on this side. The status does not tell: Config.Statuses may be
// anything.
func (p *Problem) isOurs() bool {
	return p.status() >= http.StatusInternalServerError || p.Type == TypeUnavailable || p.Type == TypeProtocol || p.Type == TypeOutcomeUnknown
}

// log tells the cause of a problem of ours. That a client has gone is none.
func (m *Middleware) log(r *http.Request, p *Problem, f *failure) {
	ctx := r.Context()
	if ctx.Err() != nil && errors.Is(f.err, context.Canceled) {
		m.config.Logger.DebugContext(ctx, "the client has gone", "method", r.Method, "path", r.URL.Path, "error", f.err)
		return
	}
	m.config.Logger.ErrorContext(ctx, "request failed",
		"method", r.Method, "path", r.URL.Path, "problem", p.Type, "in", string(f.origin), "error", f.err)
}

// problem turns a failure into what the client needs to know: above all, whether to try again and with which key. The
// texts never quote the error.
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

// problemOfHook is that of a function of the Config which has returned an error. It is the Problem that it has returned, or
// otherwise.
func (m *Middleware) problemOfHook(err error, otherwise *Problem) *Problem {
	p, said := problemIn(err)
	switch {
	case said && p == nil:
		return internal()
	case said:
		return p
	case passes(err):
		return m.unavailable()
	}
	return otherwise
}

func (m *Middleware) problemOfFingerprint(err error) *Problem {
	if errors.Is(err, idem.ErrInvalidJSON) {
		return m.problemOfHook(err, invalidJSON())
	}
	return m.problemOfHook(err, internal())
}

// problemOfHandler is that of an error which a handler has returned, and which is no Problem.
func (m *Middleware) problemOfHandler(err error) *Problem {
	if passes(err) {
		return m.unavailable()
	}
	return internal()
}

// problemOfEngine is that of an error which idem.Do has made itself. Only there can it be the client's.
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
	case passes(err):
		return m.unavailable()
	}
	return internal()
}

// problemAround is that of an error which idem.Do has made of one of the handler: as a rule, that the handler has ended
// the transaction as well.
func (m *Middleware) problemAround(f *failure, err error) *Problem {
	if errors.Is(err, idem.ErrTxEnded) || errors.Is(err, idem.ErrTxAborted) {
		return brokenTx()
	}
	return m.problem(f)
}

// passes reports whether err tells of a state that passes: of the database, or of the time for the request.
func passes(err error) bool {
	return idem.Retryable(err) || errors.Is(err, errFull) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func (m *Middleware) problemOfKey(err error) *Problem {
	switch {
	case errors.Is(err, keyheader.ErrMissing):
		return m.missingKey()
	case errors.Is(err, keyheader.ErrSeveral):
		return m.invalidKey("There is more than one key.")
	}
	return m.invalidKey("A key is one string, in quotes or without.")
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
