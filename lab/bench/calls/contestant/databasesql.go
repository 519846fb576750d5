package contestant

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
)

// PlainSQL is Plain with database/sql. The difference to Plain is the cost of database/sql.
func PlainSQL() Contestant {
	return Contestant{
		Name: NamePlainSQL, Repeats: true, Recordless: true,
		Open: func(_ context.Context, place Place) (Runner, error) {
			return plainSQL{stdlib.OpenDBFromPool(place.Pool)}, nil
		},
	}
}

type plainSQL struct{ db *sql.DB }

func (p plainSQL) Close() { _ = p.db.Close() }

func (p plainSQL) Do(ctx context.Context, call Call) (Answer, error) {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = tx.Rollback() }()
	if err := call.executeSQL(ctx, tx); err != nil {
		return Answer{}, err
	}
	return Answer{Body: call.Body}, tx.Commit()
}

// IdemSQL is Idem with database/sql.
func IdemSQL() Contestant {
	c := Idem()
	c.Name = NameIdemSQL
	c.Open = func(_ context.Context, place Place) (Runner, error) {
		return idemSQL{idemsql.OpenDB(place.Pool)}, nil
	}
	return c
}

type idemSQL struct{ db *sql.DB }

func (i idemSQL) Close() { _ = i.db.Close() }

func (i idemSQL) Do(ctx context.Context, call Call) (Answer, error) {
	res, err := idemsql.Do(ctx, i.db, Scope, call.Key, HashOf(call), func(tx *sql.Tx) (idem.Response, error) {
		return idem.Response{Status: 201, Body: call.Body}, call.executeSQL(ctx, tx)
	})
	return Answer{Body: res.Body, Replayed: res.Replayed}, err
}

// executeSQL is Execute with database/sql.
func (c Call) executeSQL(ctx context.Context, tx *sql.Tx) error {
	for _, s := range c.Business(c.Key) {
		if _, err := tx.ExecContext(ctx, s.SQL, s.Args...); err != nil {
			return err
		}
	}
	c.hold()
	return nil
}
