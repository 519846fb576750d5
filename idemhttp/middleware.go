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

// New returns a Middleware that uses pool. It returns an error if config has no Scope, if [idem.Do]
// would reject a setting, or if settings contradict each other.
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
// next must have answered when it returns. Some frameworks call their handlers later, or with
// another writer. So if next has written nothing, Wrap answers 500, logs the cause and commits
// nothing, in two cases: next has not called Tx, or the client already has an answer. See
// docs/recipes.md.
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
// error, its writes are rolled back, and what it has written to w is discarded.
//
//   - A *Problem is the answer, and may be recorded.
//   - After a serialization failure or a deadlock the handler runs again.
//   - Any other error is answered with 500, or 503 if it is transient. The error is logged and not
//     recorded, and its text is not sent to the client. It is never reported as a fault of the
//     client.
//
// A request whose method is not in Config.Methods also gets a transaction. Its key is ignored.
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
