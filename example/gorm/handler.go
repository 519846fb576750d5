package main

import (
	"encoding/json"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/idemsql"
)

// handler takes orders over HTTP, behind idemhttp.
func (s *shop) handler(pool *pgxpool.Pool) (http.Handler, error) {
	covered, err := idemhttp.New(pool, idemhttp.Config{
		Scope:   func(*http.Request) (string, error) { return "tenant-1/POST orders", nil },
		Through: idemsql.Through(s.db),
	})
	if err != nil {
		return nil, err
	}
	return covered.Handle(s.post), nil
}

func (s *shop) post(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return &idemhttp.Problem{Status: http.StatusBadRequest, Title: "an order is asked for by its SKU"}
	}
	own, err := idemsql.SQLTx(tx)
	if err != nil {
		return err
	}
	if err := s.in(r.Context(), own).Create(&o).Error; err != nil {
		return err
	}
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(o)
}
