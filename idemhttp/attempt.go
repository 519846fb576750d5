package idemhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// handler is what runs inside the transaction.
type handler func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error

// exchange is one request on its way through the middleware. It makes an attempt for each run of the transaction.
type exchange struct {
	*Middleware
	handler handler
	w       http.ResponseWriter
	r       *http.Request
	body    []byte
	last    *attempt
}

// attempt is one run of the handler, with a writer and a request of its own. It is the context of that request.
type attempt struct {
	context.Context
	tx       pgx.Tx
	recorder recorder
	body     body
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

// run runs the handler on tx. Of its error, only a Problem is an answer.
func (x *exchange) run(tx pgx.Tx) (Outcome, error) {
	a := &attempt{Context: x.r.Context(), tx: tx}
	x.last = a
	x.prepare(&a.recorder)
	defer a.recorder.close() // also if the handler panics
	a.body.reader.Reset(x.body)
	defer a.body.Close()

	r := x.r.WithContext(a)
	if x.r.Body != nil {
		r.Body = &a.body
	}
	err := x.handler(tx, &a.recorder, r)
	if r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll() // net/http sees to the request that it knows, which is another
	}
	problem, said := errors.AsType[*Problem](err)
	switch {
	case said:
		return x.say(a, problem)
	case err != nil:
		return Forget, err
	}
	return x.decide(a, &a.recorder)
}

// say makes a problem the answer, in the place of what the handler may have written. An error never commits, so the
// problem can truthfully say what that means for the client.
func (x *exchange) say(a *attempt, problem *Problem) (Outcome, error) {
	said := *problem
	said.Retryable, said.SafeNewKey = x.config.Store(said.status()) == Forget, true
	var w recorder
	x.prepare(&w)
	x.config.Render(&w, x.r, &said)
	outcome, err := x.decide(a, &w)
	if outcome == Commit {
		outcome = Undo
	}
	return outcome, err
}

func (x *exchange) decide(a *attempt, w *recorder) (Outcome, error) {
	response, err := w.finish(x.r.Method == http.MethodHead)
	if err != nil {
		return Forget, err
	}
	a.answer = answer{Response: response, passing: w.passing}
	return x.config.Store(response.Status), nil
}

func (x *exchange) prepare(w *recorder) {
	w.keeper, w.limit, w.base = x.keeper, x.config.MaxResponse, x.w.Header()
}
