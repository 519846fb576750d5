package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyheader"
)

// Middleware runs handlers inside a transaction that also records what they answer. It is safe for concurrent use.
type Middleware struct {
	pool    *pgxpool.Pool
	config  Config
	keeper  *keeper
	options []idem.Option
	do      func(context.Context, *pgxpool.Pool, string, string, idem.Hash, func(pgx.Tx) (idem.Response, error), ...idem.Option) (idem.Result, error)
}

// New returns a Middleware on the tables of pool. It refuses a config without a Scope, or with settings that contradict
// each other.
func New(pool *pgxpool.Pool, config Config) (*Middleware, error) {
	if pool == nil {
		return nil, errors.New("idemhttp: pool is nil")
	}
	if err := config.setDefaults(); err != nil {
		return nil, err
	}
	keeper, err := newKeeper(config.Keep, config.ReplayedHeader)
	if err != nil {
		return nil, err
	}
	return &Middleware{pool: pool, config: config, keeper: keeper, options: config.options(), do: idem.Do}, nil
}

// Wrap makes the requests of next safe to retry. next finds its transaction with [Tx]. It is middleware of the usual form.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	run := func(_ pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		next.ServeHTTP(w, r)
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !m.covers(r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		m.serve(w, r, run)
	})
}

// Handle is Wrap for a handler that takes the transaction as an argument. If it returns an error its writes are undone and
// what it has written to w is dropped. A *Problem is then the answer, and may be remembered; after a serialization failure
// or a deadlock the handler is run again; any other error is answered with a problem that does not quote it, and forgotten.
//
// A request whose method is not in Config.Methods has a transaction as well, and its key is not looked at.
func (m *Middleware) Handle(run func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, run) })
}

func (m *Middleware) covers(method string) bool { return slices.Contains(m.config.Methods, method) }

// serve answers one request, and sends nothing before it is decided.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, run handler) {
	x := &exchange{Middleware: m, handler: run, w: w, r: r}
	if err := x.answer(r.Context()); err != nil {
		m.refuse(w, r, err)
	}
}

var (
	errForgotten = errors.New("idemhttp: the answer is not remembered")
	errNested    = errors.New("idemhttp: the middleware is applied twice to this route")
)

// answer executes the request, or finds its answer, and sends it. An error means that nothing has been sent.
func (x *exchange) answer(ctx context.Context) error {
	if attemptOf(ctx) != nil {
		return errNested
	}
	scope, err := x.config.Scope(x.r)
	if err != nil {
		return forbidden{err}
	}
	key, err := x.key(x.r)
	if err != nil {
		return err
	}
	if x.body, err = readBody(x.w, x.r, x.config.MaxBody); err != nil {
		return err
	}
	if key == "" {
		if err := x.runKeyless(ctx); err != nil {
			return err
		}
		x.sendOwn()
		return nil
	}
	hash, err := x.config.Fingerprint(x.r, x.body)
	if err != nil {
		return err
	}
	result, err := x.do(ctx, x.pool, scope, key, hash, x.runKeyed, x.options...)
	switch {
	case err == errForgotten: // an error that wraps it says more
		x.sendOwn()
		return nil
	case err != nil:
		return err
	case result.Replayed:
		return x.replay(result)
	}
	x.sendOwn()
	return nil
}

// key returns the key of a request, or "" if it needs none.
func (m *Middleware) key(r *http.Request) (string, error) {
	if !m.covers(r.Method) {
		return "", nil
	}
	key, err := keyheader.Parse(r.Header[m.config.Header])
	if m.config.Optional && errors.Is(err, keyheader.ErrMissing) {
		return "", nil
	}
	return key, err
}

// runKeyed is the fn of idem.Do.
func (x *exchange) runKeyed(tx pgx.Tx) (idem.Response, error) {
	outcome, err := x.run(tx)
	if err != nil {
		return idem.Response{}, err
	}
	response := x.last.answer.Response
	switch outcome {
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
