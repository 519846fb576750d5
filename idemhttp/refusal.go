package idemhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyheader"
)

// refuse answers with the problem for a failure. It logs the failure unless the client has caused
// it.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, f *failure) {
	p := m.problem(f)
	if p.isServerFault() {
		m.log(r, p, f)
	}
	m.config.Render(w, r, p)
}

// isServerFault reports whether the service has caused the problem. The status alone does not show
// this, because Config.Statuses may change the status.
func (p *Problem) isServerFault() bool {
	return p.status() >= http.StatusInternalServerError || p.Type == TypeUnavailable || p.Type == TypeProtocol || p.Type == TypeOutcomeUnknown
}

// log logs the cause of a problem. A request that its client has canceled is logged only at the
// level Debug, because it is not an error of the service.
func (m *Middleware) log(r *http.Request, p *Problem, f *failure) {
	ctx := r.Context()
	if ctx.Err() != nil && errors.Is(f.err, context.Canceled) {
		m.config.Logger.DebugContext(ctx, "the client has gone", "method", r.Method, "path", r.URL.Path, "error", f.err)
		return
	}
	m.config.Logger.ErrorContext(ctx, "request failed",
		"method", r.Method, "path", r.URL.Path, "problem", p.Type, "in", string(f.origin), "error", f.err)
}

// problem returns the problem for a failure. The problem shows the client whether to retry, and
// with which key. Its texts never quote the error.
func (m *Middleware) problem(f *failure) *Problem {
	kind := kindOf(f)
	switch f.origin {
	case inScope, inAuthorize, inFingerprint, inInput, inOperation:
		switch p, isProblem := problemIn(f.err); {
		case isProblem && p == nil:
			kind = TypeInternal
		case isProblem:
			return p
		}
	case inEngine:
		// The error of idem.Do may wrap a failure of the handler. If the handler has also ended or
		// aborted its transaction, the broken transaction is reported instead of this failure.
		if inner, ok := errors.AsType[*failure](f.err); ok && !isBrokenTx(f.err) {
			return m.problem(inner)
		} else if ok {
			kind = TypeBrokenTx
		}
	}
	p := m.newProblem(kind)
	switch {
	case kind == TypeInProgress:
		busy, _ := errors.AsType[*idem.InProgressError](f.err)
		p.RetryAfter = busy.RetryAfter
	case kind == TypeInvalidKey && f.origin == inEngine:
		p.Detail = "A key has 1 to 255 characters."
	case kind == TypeInvalidKey && errors.Is(f.err, keyheader.ErrSeveral):
		p.Detail = "There is more than one key."
	case kind == TypeOutcomeUnknown && errors.Is(f.err, errUnknownWithoutKey):
		p.Detail, p.Retryable, p.RetryAfter = "The request had no key, so to repeat it may do it twice.", false, 0
	}
	return p
}

func isBrokenTx(err error) bool {
	return errors.Is(err, idem.ErrTxEnded) || errors.Is(err, idem.ErrTxAborted)
}

// kindOf returns the problem type for a failure. It ignores a *Problem in the error, because the
// caller handles it.
func kindOf(f *failure) string {
	is := func(target error) bool { return errors.Is(f.err, target) }
	switch f.origin {
	case inKey:
		if is(keyheader.ErrMissing) {
			return TypeMissingKey
		}
		return TypeInvalidKey
	case inBody:
		if _, ok := errors.AsType[*http.MaxBytesError](f.err); ok {
			return TypeBodyTooLarge
		}
		if is(errConsumed) {
			return TypeInternal
		}
		return TypeBodyUnreadable
	case inProtocol:
		return TypeProtocol
	case inAnswer:
		return TypeUnrecordable
	case inEngine: // only if idem.Do itself returns these errors, the client may be at fault
		switch _, isInProgress := errors.AsType[*idem.InProgressError](f.err); {
		case isInProgress:
			return TypeInProgress
		case is(idem.ErrInvalidKey):
			return TypeInvalidKey
		case is(idem.ErrMismatch):
			return TypeKeyReused
		case is(errUnknownWithoutKey), is(idem.ErrOutcomeUnknown):
			return TypeOutcomeUnknown
		case isBrokenTx(f.err):
			return TypeBrokenTx
		case is(idem.ErrUnreadable):
			return TypeUnreadable
		case is(idem.ErrResponseTooLarge), is(idem.ErrInvalidResponse):
			return TypeUnrecordable
		}
	}
	switch {
	case transient(f.err):
		return TypeUnavailable
	case f.origin == inScope, f.origin == inAuthorize:
		return TypeForbidden
	case f.origin == inFingerprint && is(idem.ErrInvalidJSON):
		return TypeInvalidJSON
	}
	return TypeInternal
}

// transient reports whether a later attempt may succeed: after a temporary error of the database,
// after errFull, or after the context of the request has ended.
func transient(err error) bool {
	return idem.Retryable(err) || errors.Is(err, errFull) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
