package idemsql_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// served is a handler behind idemhttp that writes through database/sql.
type served struct {
	*testing.T
	pool    *pgxpool.Pool
	db      *sql.DB
	handler http.Handler
}

func serve(t *testing.T, config idemhttp.Config, handle func(tx *sql.Tx, w http.ResponseWriter, r *http.Request)) *served {
	t.Helper()
	s := &served{T: t, pool: pgtest.New(t)}
	if _, err := s.pool.Exec(t.Context(), "create table ledger (key text not null)"); err != nil {
		t.Fatal(err)
	}
	s.db = idemsql.OpenDB(s.pool)
	t.Cleanup(func() { _ = s.db.Close() })
	config.Scope = func(*http.Request) (string, error) { return scope, nil }
	config.Through = idemsql.Through(s.db)
	m, err := idemhttp.New(s.pool, config)
	if err != nil {
		t.Fatal(err)
	}
	s.handler = m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, err := idemsql.SQLTx(idemhttp.Tx(r.Context()))
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := tx.ExecContext(r.Context(), "insert into ledger (key) values ($1)", r.URL.Path); err != nil {
			t.Error(err)
		}
		handle(tx, w, r)
	}))
	return s
}

func (s *served) post(path, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{}`))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

func (s *served) wantEffects(want int) {
	s.Helper()
	var got int
	if err := s.pool.QueryRow(s.Context(), "select count(*) from ledger").Scan(&got); err != nil || got != want {
		s.Errorf("%d effects, %v; want %d", got, err, want)
	}
}

func TestThrough_HandlerOfIdemhttpWritesOnSQLTx(t *testing.T) {
	t.Parallel()
	s := serve(t, idemhttp.Config{Optional: true}, func(tx *sql.Tx, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "fails") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		var n int
		if err := tx.QueryRowContext(r.Context(), "select count(*) from ledger").Scan(&n); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, n)
	})
	first, again := s.post("/orders", "k"), s.post("/orders", "k")
	if first.Code != 201 || again.Code != 201 || again.Header().Get("Idempotency-Replayed") != "true" || again.Body.String() != first.Body.String() {
		t.Errorf("%d %s, and to the retry %d %s", first.Code, first.Body, again.Code, again.Body)
	}
	s.wantEffects(1)
	if failed := s.post("/fails", "other"); failed.Code != 500 {
		t.Errorf("answered %d", failed.Code)
	}
	if failed := s.post("/fails", ""); failed.Code != 500 {
		t.Errorf("answered %d", failed.Code)
	}
	s.wantEffects(1)
	if keyless := s.post("/orders", ""); keyless.Code != 201 {
		t.Errorf("answered %d", keyless.Code)
	}
	s.wantEffects(2)
}

func TestThrough_EndingOrKeepingTheSQLTxCommitsNothing(t *testing.T) {
	t.Parallel()
	for name, misuse := range map[string]func(tx *sql.Tx) error{
		"commits":     func(tx *sql.Tx) error { return tx.Commit() },
		"rolls back":  func(tx *sql.Tx) error { return tx.Rollback() },
		"leaves rows": func(tx *sql.Tx) error { _, err := tx.Query("select generate_series(1, 100000)"); return err },
	} {
		for _, key := range []string{"k", ""} {
			t.Run(fmt.Sprintf("%s, key %q", name, key), func(t *testing.T) {
				t.Parallel()
				s := serve(t, idemhttp.Config{Optional: true}, func(tx *sql.Tx, w http.ResponseWriter, _ *http.Request) {
					_ = misuse(tx)
					w.WriteHeader(http.StatusCreated)
				})
				if answer := s.post("/orders", key); answer.Code != 500 {
					t.Errorf("answered %d", answer.Code)
				}
				s.wantEffects(0)
			})
		}
	}
	var kept *sql.Tx
	s := serve(t, idemhttp.Config{Optional: true}, func(tx *sql.Tx, w http.ResponseWriter, _ *http.Request) {
		kept = tx
		w.WriteHeader(http.StatusCreated)
	})
	for _, key := range []string{"k", ""} {
		s.post("/orders", key)
		if _, err := kept.Exec("insert into ledger (key) values ('kept')"); err == nil {
			t.Errorf("key %q: a tx is alive behind its handler", key)
		}
	}
	s.wantEffects(2)
}

func TestThrough_NeedsOpenDBOverThePoolOfTheCall(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.New(t)
	db := idemsql.OpenDB(pool)
	t.Cleanup(func() { _ = db.Close() })
	another := pgtest.Open(t, pool.Config().ConnString())
	foreign, err := sql.Open("pgx", pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = foreign.Close() })
	fn := func(tx pgx.Tx) (idem.Response, error) {
		_, err := idemsql.SQLTx(tx)
		return ok, err
	}
	do := func(pool *pgxpool.Pool, option ...idem.Option) error {
		_, err := idem.Do(ctx, pool, scope, t.Name(), hashA, fn, option...)
		return err
	}
	started := operation.Define("noop", func(*operation.Op, int) (idem.Response, error) { return ok, nil })
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	_, joined := idem.DoTx(ctx, tx, scope, "joined", hashA, fn, idemsql.Through(db))
	_, operated := started.Do(ctx, pool, scope, "op", hashA, 1, idemsql.Through(db))
	_, other := idemhttp.New(another, idemhttp.Config{Scope: func(*http.Request) (string, error) { return scope, nil }, Through: idemsql.Through(db)})
	for name, err := range map[string]error{
		"another pool": do(another, idemsql.Through(db)), "another pool for idemhttp": other, "no pool": do(nil, idemsql.Through(db)),
		"a *sql.DB of pgx's own": do(pool, idemsql.Through(foreign)), "no *sql.DB": do(pool, idemsql.Through(nil)),
		"without the option": do(pool), "DoTx": joined, "an operation": operated,
	} {
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if err := do(pool, idemsql.Through(db)); err != nil {
		t.Error(err)
	}
}
