package main

import (
	"database/sql"
	"encoding/json"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/idemsql"
)

// handler returns an idempotent handler that places orders. base is a database/sql pool over pool.
func (db gormDB) handler(pool *pgxpool.Pool, base *sql.DB) (http.Handler, error) {
	covered, err := idemhttp.New(pool, idemhttp.Config{
		Scope:   func(*http.Request) (string, error) { return "tenant-1/POST orders", nil },
		Through: idemsql.Through(base),
	})
	if err != nil {
		return nil, err
	}
	return covered.Handle(db.post), nil
}

func (db gormDB) post(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return &idemhttp.Problem{Status: http.StatusBadRequest, Title: "the body is not an order with a SKU"}
	}
	own, err := idemsql.SQLTx(tx)
	if err != nil {
		return err
	}
	if err := db.in(r.Context(), own).Create(&o).Error; err != nil {
		return err
	}
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(o)
}
