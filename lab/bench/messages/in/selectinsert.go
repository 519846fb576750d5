package in

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/runner"
)

// SelectInsert looks up the id of the message. If the id is missing, it inserts the effect and the
// id. All of this happens in one transaction. The index on the ids is not unique. Many people write
// this code first. It is wrong at READ COMMITTED: two simultaneous deliveries can both find no id,
// and the effect is doubled.
var SelectInsert = Contestant{
	Name: "SELECT, then INSERT", Repeats: true,
	Prepare: func(ctx context.Context, dsn string) error {
		return runner.Execute(ctx, dsn, `create table seen (message uuid not null, at timestamptz not null default now());
			create index on seen (message)`)
	},
	Consume: each(func(ctx context.Context, place Place, all []broker.Delivery) ([]int64, error) {
		return tagsOf(all), pgx.BeginFunc(ctx, place.Pool, func(tx pgx.Tx) error { return unlessSeen(ctx, tx, all[0].ID) })
	}),
}

func unlessSeen(ctx context.Context, tx pgx.Tx, id string) error {
	var one int
	err := tx.QueryRow(ctx, "select 1 from seen where message = $1 limit 1", id).Scan(&one)
	if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if _, err := tx.Exec(ctx, insertEffect, id); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "insert into seen (message) values ($1)", id)
	return err
}
