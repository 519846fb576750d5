package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// handler is what runs inside the transaction.
type handler func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error

// attempt is one run of the handler, with a writer and a request of its own. It is the context of that request.
type attempt struct {
	context.Context
	tx       pgx.Tx
	asked    atomic.Bool         // whether the handler has asked for tx
	outside  http.ResponseWriter // that of the client
	recorder recorder
	body     bodyReader
	answer   answer
}

// answer is what an attempt came to.
type answer struct {
	idem.Response
	passing map[string][]string // header fields for the first caller alone
}

// Value adds the attempt to the context.
func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// run runs the handler on tx. Of its error, only a Problem is an answer. Every error that run returns is a failure, which
// says that it is the handler's.
func (x *exchange) run(tx pgx.Tx) (Decision, error) {
	a := &attempt{Context: x.r.Context(), tx: tx, outside: x.w, body: bodyReader{body: &x.body}}
	if x.last == nil {
		x.routing = routingIn(x.r.Context())
	} else {
		x.routing.restore()
	}
	x.last = a
	x.prepare(&a.recorder)
	defer a.recorder.close() // also if the handler panics
	defer a.body.Close()

	r := x.r.Clone(a)                   // a handler may change the URL and the header, and may be run again
	r.MultipartForm = x.r.MultipartForm // its files are those of the original
	if x.r.Body != nil {
		r.Body = &a.body
	}
	err := x.handler(tx, &a.recorder, r)
	removeFiles(r, x.r)
	problem, said := problemIn(err)
	switch {
	case said && problem != nil:
		return x.say(a, problem)
	case err != nil && a.recorder.hasRefused(err):
		return Forget, &failure{inAnswer, err}
	case err != nil:
		return Forget, &failure{inHandler, err}
	}
	return x.decide(a, &a.recorder)
}

var (
	errElsewhere = errors.New("idemhttp: the handler has written no answer and has not asked for its transaction: the framework calls it behind Wrap, " +
		"so wrap the whole router")
	errBeside = errors.New("idemhttp: the handler has answered by another http.ResponseWriter than the one of Wrap: wrap the whole router")
)

// missed says that the handler did its work where the middleware does not see it: its answer would be recorded as an empty 200.
func (a *attempt) missed() error {
	if a.recorder.touched() {
		return nil
	}
	if !a.asked.Load() {
		return errElsewhere
	}
	if beside, ok := a.outside.(interface{ Written() bool }); ok && beside.Written() {
		return errBeside
	}
	return nil
}

// say makes a problem the answer, in the place of what the handler may have written. An error never commits, so the
// problem can truthfully say what that means for the client.
func (x *exchange) say(a *attempt, problem *Problem) (Decision, error) {
	said := *problem
	said.Retryable, said.SafeNewKey = x.config.Decide(said.status()) == Forget, true
	var w recorder
	x.prepare(&w)
	x.config.Render(&w, x.r, &said)
	decision, err := x.decide(a, &w)
	if decision == Commit {
		decision = Undo
	}
	return decision, err
}

func (x *exchange) decide(a *attempt, w *recorder) (Decision, error) {
	response, err := w.finish(x.r.Method == http.MethodHead)
	if err != nil {
		return Forget, &failure{inAnswer, err}
	}
	a.answer = answer{Response: response, passing: w.passing}
	decision := x.config.Decide(response.Status)
	x.logTwice(w)
	if w.failed != 0 && decision == Commit {
		decision = Undo // an error never commits
	}
	return decision, nil
}

// logTwice tells of a handler that has answered more than once.
func (x *exchange) logTwice(w *recorder) {
	ctx, path := x.r.Context(), x.r.URL.Path
	if w.failed != 0 {
		x.config.Logger.ErrorContext(ctx, "the handler has failed behind its answer, so nothing is committed",
			"method", x.r.Method, "path", path, "status", w.failed, "failure", w.status)
	}
	if w.second != 0 {
		x.config.Logger.WarnContext(ctx, "the handler has answered twice, and the first answer counts",
			"method", x.r.Method, "path", path, "status", w.status, "second", w.second)
	}
}

func (x *exchange) prepare(w *recorder) {
	w.filter, w.limit, w.base = x.filter, x.config.MaxResponse, x.w.Header()
}

// removeFiles removes the files of a form that was read from r, which is a copy of original. net/http removes those of the original.
func removeFiles(r, original *http.Request) {
	if r.MultipartForm != nil && r.MultipartForm != original.MultipartForm {
		_ = r.MultipartForm.RemoveAll()
	}
}
