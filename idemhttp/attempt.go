package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// handler is the function that runs in the transaction.
type handler func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error

// attempt is one run of the handler. It has its own writer and request, and is the context of that
// request.
type attempt struct {
	context.Context
	tx       pgx.Tx
	asked    atomic.Bool         // the handler has called Tx
	outside  http.ResponseWriter // the writer of the client
	recorder recorder
	body     bodyReader
	answer   answer
}

// answer is the result of an attempt.
type answer struct {
	idem.Response
	firstOnly map[string][]string // header fields that only the first caller gets
}

// Value returns the attempt for attemptKey, and otherwise the value of the outer context.
func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// run runs the handler on tx and decides about its answer. Every error that it returns is a
// *failure with the origin inHandler or inAnswer. A Problem that the handler returns is an answer,
// not an error.
func (x *exchange) run(tx pgx.Tx) (Decision, error) {
	a := &attempt{Context: x.r.Context(), tx: tx, outside: x.w, body: bodyReader{body: &x.body}}
	if x.last == nil {
		x.routing = routingIn(x.r.Context())
	} else {
		x.routing.restore()
	}
	x.last = a
	x.prepare(&a.recorder)
	defer a.recorder.close() // even if the handler panics
	defer a.body.Close()

	r := x.r.Clone(a)                   // the handler may change the URL and the header, and may run again
	r.MultipartForm = x.r.MultipartForm // its files belong to the original
	if x.r.Body != nil {
		r.Body = &a.body
	}
	err := x.handler(tx, &a.recorder, r)
	removeFiles(r, x.r)
	problem, isProblem := problemIn(err)
	switch {
	case isProblem && problem != nil:
		return x.answerWith(a, problem)
	case err != nil && a.recorder.hasRefused(err):
		return Forget, &failure{inAnswer, err}
	case err != nil:
		return Forget, &failure{inHandler, err}
	}
	return x.decide(a, &a.recorder)
}

var (
	errNotAnswered = errors.New("idemhttp: the handler has written no answer and has not called Tx: the framework calls it after Wrap has returned; " +
		"wrap the whole router")
	errOtherWriter = errors.New("idemhttp: the handler has answered with another http.ResponseWriter than the one of Wrap; wrap the whole router")
)

// checkAnswered returns an error if the handler seems to work outside of the middleware, later or
// on another writer. Without this check, an empty 200 would be recorded.
func (a *attempt) checkAnswered() error {
	if a.recorder.touched() {
		return nil
	}
	if !a.asked.Load() {
		return errNotAnswered
	}
	if w, ok := a.outside.(interface{ Written() bool }); ok && w.Written() {
		return errOtherWriter
	}
	return nil
}

// answerWith makes problem the answer of the attempt, and discards what the handler has written.
// The decision is never Commit, so that SafeNewKey is true.
func (x *exchange) answerWith(a *attempt, problem *Problem) (Decision, error) {
	sent := *problem
	sent.Retryable, sent.SafeNewKey = x.config.Decide(sent.status()) == Forget, true
	var w recorder
	x.prepare(&w)
	x.config.Render(&w, x.r, &sent)
	decision, err := x.decide(a, &w)
	if decision == Commit {
		decision = Undo
	}
	return decision, err
}

// decide takes the answer from w and returns what happens to it and to the writes. An attempt whose
// handler failed after its answer is never committed.
func (x *exchange) decide(a *attempt, w *recorder) (Decision, error) {
	response, err := w.finish(x.r.Method == http.MethodHead)
	if err != nil {
		return Forget, &failure{inAnswer, err}
	}
	a.answer = answer{Response: response, firstOnly: w.firstOnly}
	decision := x.config.Decide(response.Status)
	x.logSecondAnswer(w)
	if w.replaced != 0 && decision == Commit {
		decision = Undo
	}
	return decision, nil
}

// logSecondAnswer logs that the handler has answered more than once.
func (x *exchange) logSecondAnswer(w *recorder) {
	ctx, path := x.r.Context(), x.r.URL.Path
	if w.replaced != 0 {
		x.config.Logger.ErrorContext(ctx, "the handler failed after its answer, so nothing is committed",
			"method", x.r.Method, "path", path, "status", w.replaced, "failure", w.status)
	}
	if w.second != 0 {
		x.config.Logger.WarnContext(ctx, "the handler answered twice, and the first answer is sent",
			"method", x.r.Method, "path", path, "status", w.status, "second", w.second)
	}
}

func (x *exchange) prepare(w *recorder) {
	w.filter, w.limit, w.base = &x.filter, x.config.MaxResponse, x.w.Header()
}

// removeFiles removes the files of a multipart form that was read from r, a copy of original.
// net/http removes only the files of original.
func removeFiles(r, original *http.Request) {
	if r.MultipartForm != nil && r.MultipartForm != original.MultipartForm {
		_ = r.MultipartForm.RemoveAll()
	}
}

type attemptKey struct{}

// Tx returns the transaction of the request with context ctx. The rules of [idem.Do] apply: the
// handler must not commit it or roll it back, and cannot use it after it has returned.
// [idem.ExecutionID] accepts it.
//
// Tx panics outside of a handler of a Middleware, and for a method that is not in Config.Methods.
func Tx(ctx context.Context) pgx.Tx {
	a := attemptOf(ctx)
	if a == nil {
		panic("idemhttp: Tx: this context is not that of a handler under Middleware.Wrap or Middleware.Handle; " +
			"is the route wrapped, and the method in Config.Methods?")
	}
	a.asked.Store(true)
	return a.tx
}

// attemptOf returns the attempt with context ctx, or nil.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}
