package main

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/idem-go/idem/example/sql/ent"
)

// entClient returns a client whose statements are part of tx. The client cannot begin a transaction
// of its own.
func entClient(tx *sql.Tx) *ent.Client {
	return ent.NewClient(ent.Driver(entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})))
}

func insertWithEnt(ctx context.Context, tx *sql.Tx, sku string) (order, error) {
	placed, err := entClient(tx).Order.Create().SetSku(sku).Save(ctx)
	if err != nil {
		return order{}, err
	}
	return order{placed.ID, placed.Sku}, nil
}
