package good

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/operation"
)

func (s *service) writesByTheConnection(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		conn := tx.Conn()
		if _, err := conn.Exec(ctx, "INSERT INTO orders DEFAULT VALUES /* commit */"); err != nil {
			return idem.Response{}, err
		}
		_, err := conn.PgConn().Exec(ctx, "SELECT 1; SELECT 2").ReadAll()
		return created, err
	})
}

func (s *service) commentsOnTheCommit(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, `
			-- idem commits; COMMIT
			/* ROLLBACK; /* END; */ ABORT; */
			INSERT INTO orders DEFAULT VALUES`)
		return created, err
	})
}

func (s *service) storesTheWord(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (note) VALUES ($1)", "COMMIT"); err != nil {
			return idem.Response{}, err
		}
		_, err := tx.Exec(ctx, `INSERT INTO orders (note, "a;commit") VALUES ('first; commit;', E'it\'s; rollback')`)
		return created, err
	})
}

func (s *service) runsABlock(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idemsql.Do(ctx, s.db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
		if _, err := tx.ExecContext(ctx, `DO $do$ BEGIN PERFORM 1; END; $do$; SELECT CASE WHEN true THEN 1
			END`); err != nil {
			return idem.Response{}, err
		}
		_, err := tx.ExecContext(ctx, `CREATE FUNCTION pg_temp.two() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END`)
		return created, err
	})
}

func (s *service) savepointsBySQL(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Conn().Exec(ctx, `savepoint a; /* a guess */ insert into guesses default values;
			rollback work to savepoint a; -- wrong
			release savepoint a; prepare two as select 2; deallocate two`)
		return created, err
	})
}

func (s *service) resolvesAPreparedTransaction(ctx context.Context, scope, key string, hash idem.Hash) error {
	_, err := idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "INSERT INTO decisions (gid) VALUES ('orders-7')")
		return created, err
	})
	if err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, "COMMIT PREPARED 'orders-7'")
	return err
}

var commitsBehindTheOperation = operation.Define("behind", func(op *operation.Op, in string) (idem.Response, error) {
	return created, operation.Exec(op, "order", func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue("INSERT INTO orders (id) VALUES ($1)", "COMMIT")
		batch.Queue("INSERT INTO orders (id) VALUES ('COMMIT')")
		return tx.SendBatch(op.Context(), batch).Close()
	})
})

func (s *service) commitsItsOwn(ctx context.Context, scope, key string, hash idem.Hash) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := idem.DoTx(ctx, tx, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES")
		return created, err
	}); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func writesByTheSQLTx(m *idemhttp.Middleware) http.Handler {
	return m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		own, err := idemsql.SQLTx(tx)
		if err != nil {
			return err
		}
		_, err = own.ExecContext(r.Context(), "INSERT INTO orders DEFAULT VALUES")
		return err
	})
}

func (s *service) writesInAHelperOfTheConnection(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		if err := writeOn(ctx, tx.Conn()); err != nil {
			return idem.Response{}, err
		}
		try, err := tx.Begin(ctx)
		if err != nil {
			return idem.Response{}, err
		}
		return created, guess(ctx, try)
	})
}

func writeOn(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "UPDATE orders SET done = true")
	return err
}

func guess(ctx context.Context, try pgx.Tx) error {
	if _, err := try.Exec(ctx, "INSERT INTO guesses DEFAULT VALUES"); err != nil {
		return try.Rollback(ctx)
	}
	return try.Commit(ctx)
}
