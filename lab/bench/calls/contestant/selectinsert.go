package contestant

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SelectInsert looks up the key. If the key is missing, one transaction executes the business and
// inserts the key. The index on the keys is not unique. Many people write this code first. It is
// atomic but wrong at READ COMMITTED: two simultaneous calls can both find no key, and both
// execute. The benchmark counts how often that happens.
var SelectInsert = Contestant{
	Name: "SELECT, then INSERT", Repeats: true, Tables: []string{"seen_keys"}, Open: pooled(selectInsert),
	Schema: `create table seen_keys (key text not null, body bytea not null, created_at timestamptz not null default now());
		create index on seen_keys (key)`,
}

func selectInsert(ctx context.Context, pool *pgxpool.Pool, call Call) (Answer, error) {
	seen := Answer{Replayed: true}
	err := pool.QueryRow(ctx, "select body from seen_keys where key = $1 limit 1", call.Key).Scan(&seen.Body)
	if !errors.Is(err, pgx.ErrNoRows) {
		return seen, err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := call.Execute(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into seen_keys (key, body) values ($1, $2)", call.Key, call.Body)
		return err
	})
	return Answer{Body: call.Body}, err
}
