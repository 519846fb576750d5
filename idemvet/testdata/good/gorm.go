package good

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/idemsql"
)

func (s *service) placesByASession(ctx context.Context, orms *gorm.DB, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idemsql.Do(ctx, s.db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
		session := orms.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
		session.Statement.ConnPool = tx
		return created, session.Exec("INSERT INTO orders DEFAULT VALUES").Error
	})
}

func handlesByASession(m *idemhttp.Middleware, orms *gorm.DB) http.Handler {
	return m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		own, err := idemsql.SQLTx(tx)
		if err != nil {
			return err
		}
		session := orms.Session(&gorm.Session{NewDB: true, SkipDefaultTransaction: true}).WithContext(r.Context())
		session.Statement.ConnPool = own
		return session.Exec("INSERT INTO orders DEFAULT VALUES").Error
	})
}

func (s *service) placesByAClosure(ctx context.Context, orms *gorm.DB, scope, key string, hash idem.Hash) error {
	in := func(tx *sql.Tx) *gorm.DB {
		session := orms.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
		session.Statement.ConnPool = tx
		return session
	}
	_, _, err := idemsql.DoJSON(ctx, s.db, scope, key, hash, func(tx *sql.Tx) (int64, error) {
		done := in(tx).Exec("INSERT INTO orders DEFAULT VALUES")
		return done.RowsAffected, done.Error
	})
	return err
}
