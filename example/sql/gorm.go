package main

import (
	"context"
	"database/sql"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

type gormDB struct{ *gorm.DB }

func openGorm(db *sql.DB) (gormDB, error) {
	opened, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{})
	return gormDB{opened}, err
}

// in returns a gorm.DB whose statements are part of tx. The gorm.DB begins no transaction of its
// own.
func (db gormDB) in(ctx context.Context, tx *sql.Tx) *gorm.DB {
	session := db.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
	session.Statement.ConnPool = tx
	return session
}

func (db gormDB) insert(ctx context.Context, tx *sql.Tx, sku string) (order, error) {
	o := order{SKU: sku}
	err := db.in(ctx, tx).Create(&o).Error
	return o, err
}
