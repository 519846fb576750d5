package orders

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

const (
	keep       = 24 * time.Hour // as long as the old code keeps a key
	inProgress = "in progress"  // what the old code writes by SET NX, until it has the answer
)

var ErrInProgress = errors.New("an old instance executes it, or died in it") // 409

// Redis is what is needed of a client.
type Redis interface {
	SetNX(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
	Set(ctx context.Context, key, value string, ttl time.Duration) error
	Get(ctx context.Context, key string) (value string, err error) // "" if there is none
}

// Place executes a request in the days in which instances of the old code run as well.
func Place(ctx context.Context, pool *pgxpool.Pool, redis Redis, tenant, key string, body []byte) (idem.Result, error) {
	work := order
	ours, err := claim(ctx, redis, tenant+":"+key)
	if err != nil {
		return idem.Result{}, err
	}
	if !ours {
		work = func(ctx context.Context, _ pgx.Tx, tenant string, _ []byte) (idem.Response, error) {
			return answered(ctx, redis, tenant+":"+key)
		}
	}
	return idem.Do(ctx, pool, idem.Scope(tenant, "POST /orders"), key, idem.HashBytes(body), func(tx pgx.Tx) (idem.Response, error) {
		return work(ctx, tx, tenant, body)
	}, idem.WithTTL(keep))
}

// claim reports whether no old instance executes the key: instances of the new code have claimed it, this one or another.
// The mark of that ends before the claim does.
func claim(ctx context.Context, redis Redis, name string) (bool, error) {
	claimed, err := redis.SetNX(ctx, name, inProgress, keep)
	if err != nil {
		return false, err
	}
	if claimed {
		return true, redis.Set(ctx, name+":idem", "1", keep-time.Minute)
	}
	mark, err := redis.Get(ctx, name+":idem")
	return mark != "", err
}

// answered returns the answer of the old code, which idem records. A key that has none must not be executed.
func answered(ctx context.Context, redis Redis, name string) (idem.Response, error) {
	switch answer, err := redis.Get(ctx, name); {
	case err != nil:
		return idem.Response{}, err
	case answer == inProgress, answer == "":
		return idem.Response{}, ErrInProgress
	default:
		return idem.Response{Status: 201, Body: []byte(answer)}, nil // as the old code has written it
	}
}

// order is the work.
func order(ctx context.Context, tx pgx.Tx, tenant string, body []byte) (idem.Response, error) {
	_, err := tx.Exec(ctx, `INSERT INTO orders (tenant, wanted) VALUES ($1, $2)`, tenant, body)
	return idem.Response{Status: 201, Body: []byte(`{"placed":true}`)}, err
}
