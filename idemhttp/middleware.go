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

// Middleware runs handlers in a transaction that also records their answers. It is safe for
// concurrent use.
type Middleware struct {
	pool *pgxpool.Pool
	settings
	answered *answered
	do       func(context.Context, *pgxpool.Pool, string, string, idem.Hash, func(pgx.Tx) (idem.Response, error), ...idem.Option) (idem.Result, error)
}

// New returns a Middleware that uses pool. It returns an error if pool is nil, if config has no
// Scope, if [idem.Do] would reject a setting, or if settings contradict each other.
func New(pool *pgxpool.Pool, config Config) (*Middleware, error) {
	if pool == nil {
		return nil, errors.New("idemhttp: New: pool is nil")
	}
	settings, err := config.settle()
	if err != nil {
		return nil, err
	}
	if settings.source != nil && settings.source.Pool() != pool {
		return nil, errors.New("idemhttp: Config.Through: its *sql.DB uses another pool than New; pass the pool that was given to idemsql.OpenDB")
	}
	return &Middleware{pool: pool, settings: settings, answered: newAnswered(), do: idem.Do}, nil
}

// Wrap returns a handler that runs next at most once for each key. next gets its transaction from
// [Tx]. Wrap has the usual form of middleware.
//
// next must write its answer before it returns. Some frameworks call their handlers later, or with
// another writer. Wrap assumes this in two cases: next has neither written anything nor called Tx,
// or next has written nothing although the client already has an answer. Wrap then answers 500,
// logs the cause and commits nothing. See docs/recipes.md.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	run := func(_ pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		next.ServeHTTP(w, r)
		return attemptOf(r.Context()).checkAnswered()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !m.covers(r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		m.serve(w, r, run)
	})
}

// Handle is Wrap for a handler that gets the transaction as an argument. If the handler returns an
// error, its writes are rolled back, and its output on w is discarded.
//
//   - A *Problem becomes the answer. It is recorded unless Config.Decide returns Forget for its
//     status.
//   - After a serialization failure or a deadlock the handler runs again.
//   - Any other error is answered with 500, or 503 if it is transient. The error is logged and not
//     recorded, and its text is not sent to the client. The error is never reported as a fault of
//     the client.
//
// If the method of a request is not in Config.Methods, the handler also gets a transaction, but the
// key of the request is ignored.
func (m *Middleware) Handle(run func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, run) })
}

func (m *Middleware) covers(method string) bool { return slices.Contains(m.config.Methods, method) }

// serve answers one request.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, run handler) {
	x := m.start(w, r, run)
	defer x.end()
	if f := x.answer(r.Context()); f != nil {
		m.refuse(w, r, f)
	}
}
