package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyheader"
)

// exchange is the processing of one request. It makes one attempt for each run of the handler.
type exchange struct {
	*Middleware
	handler handler
	w       http.ResponseWriter
	r       *http.Request
	body    body
	hook    http.Request // the copy of r that Scope, Fingerprint and Authorize get
	reader  bodyReader   // the body of hook
	last    *attempt
	routing routing // the state of the router before the first run
}

var (
	errForgotten = errors.New("idemhttp: the answer is not recorded")
	errNested    = errors.New("idemhttp: the middleware is applied twice to this route; apply it once")
	errGRPC      = errors.New("idemhttp: gRPC sends its status in trailers, which this middleware does not see; use the interceptor of module idemgrpc or idemconnect")
)

// start returns the exchange of a request. The caller must call end.
func (m *Middleware) start(w http.ResponseWriter, r *http.Request, run handler) *exchange {
	x := &exchange{Middleware: m, handler: run, w: w, r: r, hook: *r}
	if keys := r.Header[m.config.Header]; m.config.EchoKey && len(keys) == 1 && m.covers(r.Method) {
		w.Header()[m.config.Header] = []string{keys[0]}
	}
	x.body.open(w, r, m.config.MaxBody)
	x.reader.body = &x.body
	return x
}

// misplaced returns a failure if the middleware is applied twice, or if the request is a gRPC call.
// gRPC sends its status in trailers, which the middleware does not see. So the middleware would
// commit and record a failed gRPC call as a success.
func (x *exchange) misplaced(ctx context.Context) *failure {
	switch {
	case attemptOf(ctx) != nil:
		return &failure{inEngine, errNested}
	case strings.HasPrefix(strings.ToLower(x.r.Header.Get("Content-Type")), "application/grpc"):
		return &failure{inProtocol, errGRPC}
	}
	return nil
}

func (x *exchange) end() { removeFiles(&x.hook, x.r) }

// hookRequest returns a copy of the request for a function of the Config, such as Fingerprint. Each
// call of hookRequest rewinds the body. The body is read from the client only as far as the
// function reads it.
func (x *exchange) hookRequest() *http.Request {
	x.reader.rewind()
	if x.r.Body != nil && x.hook.Body != &x.reader { // in the first call, and after a function has replaced the body
		x.hook.Body = &x.reader
	}
	return &x.hook
}

// claim is the key of a request with its scope and fingerprint.
type claim struct {
	scope, key string
	hash       idem.Hash
}

// claim reads scope, key, body and fingerprint of the request, in this order. For a request without
// a key, it computes no fingerprint. If claim returns a failure, nothing has been sent to the
// client.
func (x *exchange) claim(ctx context.Context, key func() (string, error)) (*claim, *failure) {
	if f := x.misplaced(ctx); f != nil {
		return nil, f
	}
	scope, f := x.scope()
	if f != nil {
		return nil, f
	}
	c := &claim{scope: scope}
	var err error
	if c.key, err = key(); err != nil {
		return nil, &failure{inKey, err}
	}
	body, err := x.body.whole()
	if err != nil {
		return nil, &failure{inBody, err}
	}
	if c.key == "" {
		return c, nil
	}
	if c.hash, err = x.config.Fingerprint(x.hookRequest(), body); err != nil {
		return nil, &failure{inFingerprint, err}
	}
	return c, nil
}

// answer runs the handler or finds the recorded answer, and sends the answer. If it returns a
// failure, nothing has been sent to the client.
func (x *exchange) answer(ctx context.Context) *failure {
	c, f := x.claim(ctx, x.key)
	switch {
	case f != nil:
		return f
	case c.key != "":
		return x.answerKeyed(ctx, c)
	}
	if err := x.runKeyless(ctx, c.scope); err != nil {
		return failureOf(err)
	}
	x.sendFirst()
	return nil
}

func (x *exchange) answerKeyed(ctx context.Context, c *claim) *failure {
	id := x.answered.idOf(c.scope, c.key)
	options := x.options
	if likelyReplay(x.r) || x.answered.has(id) {
		options = x.replayOptions
	}
	result, err := x.do(ctx, x.pool, c.scope, c.key, c.hash, x.runKeyed, options...)
	switch {
	case err == errForgotten: // not errors.Is: an error that wraps errForgotten is a failure
		x.sendFirst()
		return nil
	case err != nil:
		return failureOf(err)
	}
	x.answered.add(id)
	if result.Replayed {
		return x.replay(result)
	}
	x.sendFirst()
	return nil
}

// scope calls Config.Scope. If Scope fails after a read error of the body, scope returns the read
// error as a failure with the origin inBody.
func (x *exchange) scope() (string, *failure) {
	scope, err := x.config.Scope(x.hookRequest())
	if err == nil {
		return scope, nil
	}
	if _, isProblem := problemIn(err); !isProblem {
		if err := x.body.reportedError(); err != nil {
			return "", &failure{inBody, err}
		}
	}
	return "", &failure{inScope, err}
}

// sentKey returns the key in the header of the request.
func (x *exchange) sentKey() (string, error) { return keyheader.Parse(x.r.Header[x.config.Header]) }

// key returns the key of the request. It returns "" if the method needs no key, or if the key is
// optional and missing.
func (x *exchange) key() (string, error) {
	if !x.covers(x.r.Method) {
		return "", nil
	}
	key, err := x.sentKey()
	if x.config.Optional && errors.Is(err, keyheader.ErrMissing) {
		return "", nil
	}
	return key, err
}

// runKeyed is the function that the exchange passes to idem.Do.
func (x *exchange) runKeyed(tx pgx.Tx) (idem.Response, error) {
	decision, err := x.run(tx)
	if err != nil {
		return idem.Response{}, err
	}
	response := x.last.answer.Response
	switch decision {
	case Commit:
		return response, nil
	case Undo:
		return idem.Response{}, idem.Reject(response)
	}
	return idem.Response{}, errForgotten
}

// sendFirst sends the answer of the last attempt, including the header fields that are not
// recorded.
func (x *exchange) sendFirst() {
	setFields(x.w.Header(), x.last.answer.firstOnly)
	send(x.w, x.last.answer.Response)
}

// send writes an answer to the client.
func send(w http.ResponseWriter, response idem.Response) {
	setFields(w.Header(), response.Header)
	w.WriteHeader(response.Status)
	if len(response.Body) > 0 {
		_, _ = w.Write(response.Body) // an error means that the client has gone; its retry gets a replay
	}
}

// replay sends a recorded answer, if Authorize allows it.
func (x *exchange) replay(result idem.Result) *failure {
	if x.config.Authorize != nil {
		if err := x.config.Authorize(x.hookRequest(), result); err != nil {
			return &failure{inAuthorize, err}
		}
	}
	header := x.w.Header()
	header.Set(x.config.ReplayedHeader, "true")
	header.Set(OriginalDateHeader, httpDate(result.CompletedAt))
	header.Set(ExpiresHeader, httpDate(result.ExpiresAt))
	send(x.w, result.Response)
	return nil
}

func httpDate(t time.Time) string { return t.UTC().Format(http.TimeFormat) }
