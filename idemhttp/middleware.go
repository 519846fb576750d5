package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// Middleware runs handlers inside a transaction that also records what they answer. It is safe for concurrent use.
type Middleware struct {
	pool *pgxpool.Pool
	settings
	answered *answered
	do       func(context.Context, *pgxpool.Pool, string, string, idem.Hash, func(pgx.Tx) (idem.Response, error), ...idem.Option) (idem.Result, error)
}

// New returns a Middleware on the tables of pool. It refuses a config without a Scope, with a setting that [idem.Do] would
// refuse, or with settings that contradict each other.
func New(pool *pgxpool.Pool, config Config) (*Middleware, error) {
	if pool == nil {
		return nil, errors.New("idemhttp: pool is nil")
	}
	settings, err := config.settle()
	if err != nil {
		return nil, err
	}
	if settings.source != nil && settings.source.Pool() != pool {
		return nil, errors.New("idemhttp: Config.Through: pool is not the one beneath its *sql.DB")
	}
	return &Middleware{pool: pool, settings: settings, answered: newAnswered(), do: idem.Do}, nil
}

// Wrap makes the requests of next safe to retry. next finds its transaction with [Tx]. It is middleware of the usual form.
//
// next has answered when it returns. A framework may call its handlers behind that, or give them another writer: where next has written
// nothing, and has not asked for Tx or the client has an answer already, the request is a 500, of which the log says why, and nothing is
// committed. See docs/recipes/routers.md.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	run := func(_ pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		next.ServeHTTP(w, r)
		return attemptOf(r.Context()).missed()
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
// what it has written to w is dropped. A *Problem is then the answer, and may be remembered. After a serialization failure
// or a deadlock the handler is run again. Any other error is a 500, or a 503 if it will pass: it is logged, the client is
// not told what it says, and nothing is remembered. No error of a handler is taken for a fault of the client's.
//
// A request whose method is not in Config.Methods has a transaction as well, and its key is not looked at.
func (m *Middleware) Handle(run func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, run) })
}

func (m *Middleware) covers(method string) bool { return slices.Contains(m.config.Methods, method) }

// serve answers one request, and sends nothing before it is decided.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, run handler) {
	x := m.start(w, r, run)
	defer x.end()
	if f := x.answer(r.Context()); f != nil {
		m.refuse(w, r, f)
	}
}
