package bad

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/operation"
)

func (s *service) commitsByTheConnection(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Conn().Exec(ctx, "commit") // want idemended
		return created, err
	})
}

func (s *service) commitsByAVariable(ctx context.Context, m inbox.Message) (inbox.Outcome, error) {
	return inbox.Handle(ctx, s.pool, "shipping", m, func(tx pgx.Tx) error {
		conn := tx.Conn()
		end := "COMMIT AND CHAIN"
		_, err := conn.Exec(ctx, end) // want idemended
		return err
	})
}

func (s *service) commitsByPgConn(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Conn().PgConn().Exec(ctx, "COMMIT").ReadAll() // want idemended
		return created, err
	})
}

func (s *service) beginsOnTheConnection(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		audit, err := tx.Conn().Begin(ctx) // want idemended
		if err != nil {
			return idem.Response{}, err
		}
		return created, audit.Commit(ctx)
	})
}

func (s *service) commitsBehindAComment(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "/* the order /* is */ placed */ COMMIT") // want idemended
		return created, err
	})
}

func (s *service) rollsBackBehindALineComment(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idemsql.Do(ctx, s.db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
		_, err := tx.ExecContext(ctx, "-- the order stays, the lock does not\n\trollback work;") // want idemended
		return created, err
	})
}

var commitsInOneString = operation.Define("one string", func(op *operation.Op, in string) (idem.Response, error) {
	return created, operation.Exec(op, "order", func(tx pgx.Tx) error {
		_, err := tx.Exec(op.Context(), `INSERT INTO orders (note) VALUES ('it''s; done'); end`) // want idemended
		return err
	})
})

func (s *service) commitsByAQuery(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		rows, err := tx.Query(ctx, "Commit") // want idemended
		if err != nil {
			return idem.Response{}, err
		}
		rows.Close()
		return created, rows.Err()
	})
}

func (s *service) commitsInABatch(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		batch := &pgx.Batch{}
		batch.Queue("INSERT INTO orders DEFAULT VALUES")
		batch.Queue("COMMIT") // want idemended
		return created, tx.SendBatch(ctx, batch).Close()
	})
}

func (s *service) commitsBehindASavepoint(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		try, err := tx.Begin(ctx)
		if err != nil {
			return idem.Response{}, err
		}
		_, err = try.Exec(ctx, "COMMIT") // want idemended
		return created, err
	})
}

func (s *service) preparesTheTransaction(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "PREPARE TRANSACTION 'orders-7'") // want idemended
		return created, err
	})
}

func commitsWhatTheHandlerHas(w http.ResponseWriter, r *http.Request) {
	if _, err := idemhttp.Tx(r.Context()).Exec(r.Context(), "commit -- at once"); err != nil { // want idemended
		http.Error(w, "no", http.StatusInternalServerError)
	}
}

func commitsTheSQLTx(m *idemhttp.Middleware) http.Handler {
	return m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		own, err := idemsql.SQLTx(tx)
		if err != nil {
			return err
		}
		return own.Commit() // want idemended
	})
}

func (s *service) commitsInAHelperOfTheConnection(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		return created, finishOn(ctx, tx.Conn())
	})
}

func finishOn(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "UPDATE orders SET done = true; COMMIT") // want idemended
	return err
}
