package main

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

type bunOrder struct {
	bun.BaseModel `bun:"table:orders"`

	ID  int64 `bun:",pk,autoincrement"`
	SKU string
}

type bunDB struct{ *bun.DB }

func newBun(db *sql.DB) bunDB { return bunDB{bun.NewDB(db, pgdialect.New())} }

func (db bunDB) insert(ctx context.Context, tx *sql.Tx, sku string) (order, error) {
	o := bunOrder{SKU: sku}
	_, err := db.NewInsert().Conn(tx).Model(&o).Exec(ctx)
	return order{o.ID, o.SKU}, err
}
