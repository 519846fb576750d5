package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// handler is a function that answers a request and makes its writes on tx.
type handler func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error

// attempt is one run of the handler. The run has its own response writer and its own copy of the
// request, and the attempt is the context of this copy.
type attempt struct {
	context.Context
	tx       pgx.Tx
	asked    atomic.Bool         // the handler has called Tx
	outside  http.ResponseWriter // the writer that sends to the client
	recorder recorder
	body     bodyReader
	answer   answer
}

// answer is the result of an attempt.
type answer struct {
	idem.Response
	firstOnly map[string][]string // header fields that are not recorded, so a replay lacks them
}

// Value returns the attempt itself for attemptKey. For any other key, it returns the value in the
// context of the client's request.
func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// run runs the handler once on tx, and returns what happens to its writes and its answer. Every
// error of run is a *failure with the origin inHandler or inAnswer. If the handler returns a
// *Problem, the problem becomes the answer and is not an error of run.
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

	r := x.r.Clone(a)                   // a copy for this run: the handler may change its URL and header
	r.MultipartForm = x.r.MultipartForm // shared: net/http removes its files after the request
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

// checkAnswered returns an error if the handler has written nothing, and seems to answer later or
// on another writer. Without this check, the middleware would record an empty 200.
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

// answerWith answers with the problem that the handler has returned, and discards the response that
// the handler has written. The decision is never Commit: the writes are rolled back, so the problem
// can promise SafeNewKey.
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

// decide takes the answer from the recorder w, and returns what happens to the answer and to the
// writes of the handler. If the handler first answered below 500 and then answered 5xx, only the
// 5xx counts, and decide never returns Commit.
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

// logSecondAnswer writes to the log if the handler has answered more than once.
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

// removeFiles removes the temporary files of a multipart form that was parsed from r, which is a
// copy of the request original. net/http removes such files only for the original request.
func removeFiles(r, original *http.Request) {
	if r.MultipartForm != nil && r.MultipartForm != original.MultipartForm {
		_ = r.MultipartForm.RemoveAll()
	}
}

type attemptKey struct{}

// Tx returns the transaction of the handler whose request has the context ctx. The rules of
// [idem.Do] apply: the handler must not commit the transaction or roll it back, and cannot use it
// after returning. [idem.ExecutionID] accepts the transaction.
//
// Tx panics outside of a handler of a Middleware. Under Wrap, Tx also panics if the method of the
// request is not in Config.Methods.
func Tx(ctx context.Context) pgx.Tx {
	a := attemptOf(ctx)
	if a == nil {
		panic("idemhttp: Tx: this context is not that of a handler under Middleware.Wrap or Middleware.Handle; " +
			"is the route wrapped, and the method in Config.Methods?")
	}
	a.asked.Store(true)
	return a.tx
}

// attemptOf returns the attempt that ctx belongs to, or nil outside of a handler.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}
