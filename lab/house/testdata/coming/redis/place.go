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
	keep       = 24 * time.Hour // for how long the old code keeps a key
	inProgress = "in progress"  // what the old code stores with SET NX until it has a response
)

var ErrInProgress = errors.New("an old instance executes the key, or died while it did") // 409

// Redis has the commands that this code needs.
type Redis interface {
	SetNX(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
	Set(ctx context.Context, key, value string, ttl time.Duration) error
	Get(ctx context.Context, key string) (value string, err error) // "" without a value
}

// Place executes a request while instances of the old code may be running.
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

// claim reports whether an instance of the new code has claimed the key, this one or another. The mark of such a claim expires
// before the claim, so an unmarked claim may be an old instance's.
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

// answered returns the old code's response, which idem then records. A key without a response must not be executed.
func answered(ctx context.Context, redis Redis, name string) (idem.Response, error) {
	switch answer, err := redis.Get(ctx, name); {
	case err != nil:
		return idem.Response{}, err
	case answer == inProgress, answer == "":
		return idem.Response{}, ErrInProgress
	default:
		return idem.Response{Status: 201, Body: []byte(answer)}, nil // the old code stores the body alone
	}
}

// order writes the order.
func order(ctx context.Context, tx pgx.Tx, tenant string, body []byte) (idem.Response, error) {
	_, err := tx.Exec(ctx, `INSERT INTO orders (tenant, wanted) VALUES ($1, $2)`, tenant, body)
	return idem.Response{Status: 201, Body: []byte(`{"placed":true}`)}, err
}
