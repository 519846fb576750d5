package bad

import (
	"context"
	"database/sql"

	"gorm.io/gorm"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
)

func (s *service) sessionOfThePool(ctx context.Context, orms *gorm.DB, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idemsql.Do(ctx, s.db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
		session := orms.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true}) // want idemoutside
		return created, session.Exec("INSERT INTO orders DEFAULT VALUES").Error
	})
}

func (s *service) sessionOfTheDatabase(ctx context.Context, orms *gorm.DB, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idemsql.Do(ctx, s.db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
		session := orms.Session(&gorm.Session{NewDB: true, SkipDefaultTransaction: true}) // want idemoutside
		session.Statement.ConnPool = s.db
		return created, session.WithContext(ctx).Exec("INSERT INTO orders DEFAULT VALUES").Error
	})
}

func (s *service) transactionInTheSharedHandle(ctx context.Context, orms *gorm.DB, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idemsql.Do(ctx, s.db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
		orms.Statement.ConnPool = tx                                                          // want idemkept
		return created, orms.WithContext(ctx).Exec("INSERT INTO orders DEFAULT VALUES").Error // want idemoutside
	})
}
