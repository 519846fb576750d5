// Package bad has programs that break a promise of idem. Many are rebuilt from reports: see reports.md.
package bad

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

type db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Queries stands for the generated code of sqlc.
type Queries struct{ db db }

// WithTx binds the queries to a transaction.
func (q *Queries) WithTx(tx pgx.Tx) *Queries { return &Queries{tx} }

// CreateOrder inserts an order.
func (q *Queries) CreateOrder(ctx context.Context, item string) error {
	_, err := q.db.Exec(ctx, "INSERT INTO orders (item) VALUES ($1)", item)
	return err
}

type bank interface {
	Charge(ctx context.Context, account string, cent int) (string, error)
}

type service struct {
	pool    *pgxpool.Pool
	db      *sql.DB
	queries *Queries
	client  *http.Client
	tx      pgx.Tx
}

var created = idem.Response{Status: 201}
