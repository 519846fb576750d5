package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyheader"
)

// exchange is one request on its way through the middleware. It makes an attempt for each run of the transaction.
type exchange struct {
	*Middleware
	handler handler
	w       http.ResponseWriter
	r       *http.Request
	body    body
	hook    http.Request // as Scope, Fingerprint and Authorize see it
	reader  bodyReader   // of hook
	last    *attempt
	routing routing // as it was before the first run
}

var (
	errForgotten = errors.New("idemhttp: the answer is not remembered")
	errNested    = errors.New("idemhttp: the middleware is applied twice to this route")
	errGRPC      = errors.New("idemhttp: gRPC tells its status in trailers, which this middleware does not see: use the interceptor of module idemgrpc or idemconnect")
)

// start returns the exchange of a request. It has to be ended.
func (m *Middleware) start(w http.ResponseWriter, r *http.Request, run handler) *exchange {
	x := &exchange{Middleware: m, handler: run, w: w, r: r, hook: *r}
	if keys := r.Header[m.config.Header]; m.config.EchoKey && len(keys) == 1 && m.covers(r.Method) {
		w.Header()[m.config.Header] = []string{keys[0]}
	}
	x.body.open(w, r, m.config.MaxBody)
	x.reader.body = &x.body
	return x
}

// misplaced says that this request is none for the middleware. The status of gRPC is in trailers: what has failed would be committed, and
// recorded as a success.
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

// asked returns the request as a function of the Config sees it: with a body that begins anew each time. It comes from the
// client as it is read, and need not be read.
func (x *exchange) asked() *http.Request {
	x.reader.rewind()
	if x.r.Body != nil && x.hook.Body != &x.reader { // at first, and if one of them has put another in its place
		x.hook.Body = &x.reader
	}
	return &x.hook
}

// claim is the key that a request is to be executed under, and what it is a key of.
type claim struct {
	scope, key string
	hash       idem.Hash
}

// claim reads the request: who asks, under which key, and for what. One that key gives no key has no hash. A failure means that nothing
// has been sent.
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
	if c.hash, err = x.config.Fingerprint(x.asked(), body); err != nil {
		return nil, &failure{inFingerprint, err}
	}
	return c, nil
}

// answer executes the request, or finds its answer, and sends it. A failure means that nothing has been sent.
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
	x.sendOwn()
	return nil
}

func (x *exchange) answerKeyed(ctx context.Context, c *claim) *failure {
	name := x.answered.nameOf(c.scope, c.key)
	options := x.options
	if likelyReplay(x.r) || x.answered.has(name) {
		options = x.replayOptions
	}
	result, err := x.do(ctx, x.pool, c.scope, c.key, c.hash, x.runKeyed, options...)
	switch {
	case err == errForgotten: // an error that wraps it says more
		x.sendOwn()
		return nil
	case err != nil:
		return failureOf(err)
	}
	x.answered.add(name)
	if result.Replayed {
		return x.replay(result)
	}
	x.sendOwn()
	return nil
}

// scope asks Config.Scope. If that could not read the body, it is the body that is refused.
func (x *exchange) scope() (string, *failure) {
	scope, err := x.config.Scope(x.asked())
	if err == nil {
		return scope, nil
	}
	if _, said := problemIn(err); !said {
		if err := x.body.failed(); err != nil {
			return "", &failure{inBody, err}
		}
	}
	return "", &failure{inScope, err}
}

// sentKey returns the key that the client has sent.
func (x *exchange) sentKey() (string, error) { return keyheader.Parse(x.r.Header[x.config.Header]) }

// key returns the key of the request, or "" if it needs none.
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

// runKeyed is the fn of idem.Do.
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

// sendOwn sends what the handler has answered here and now.
func (x *exchange) sendOwn() {
	setFields(x.w.Header(), x.last.answer.passing)
	send(x.w, x.last.answer.Response)
}
