package contestant

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SelectInsert looks up the key and, if it is missing, does the business and inserts the key in one
// transaction. The index is not unique. Many people write this first. It is atomic but wrong at
// READ COMMITTED: two simultaneous calls both find no key. The benchmark counts how often that
// happens.
func SelectInsert() Contestant {
	return Contestant{
		Name: NameSelectInsert, Repeats: true, Tables: []string{"seen_keys"},
		Open: func(ctx context.Context, place Place) (Runner, error) {
			_, err := place.Pool.Exec(ctx, `create table seen_keys (key text not null, body bytea not null, created_at timestamptz not null default now());
				create index on seen_keys (key)`)
			return selectInsert{pooled{place.Pool}}, err
		},
	}
}

type selectInsert struct{ pooled }

func (s selectInsert) Do(ctx context.Context, call Call) (Answer, error) {
	if answer, found, err := s.seen(ctx, s.pool, call.Key); found || err != nil {
		return answer, err
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := call.Execute(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into seen_keys (key, body) values ($1, $2)", call.Key, call.Body)
		return err
	})
	return Answer{Body: call.Body}, err
}

func (selectInsert) seen(ctx context.Context, pool *pgxpool.Pool, key string) (answer Answer, found bool, err error) {
	err = pool.QueryRow(ctx, "select body from seen_keys where key = $1 limit 1", key).Scan(&answer.Body)
	if errors.Is(err, pgx.ErrNoRows) {
		return Answer{}, false, nil
	}
	answer.Replayed = err == nil
	return answer, err == nil, err
}
