package orders

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

const keep = 7 * 24 * time.Hour // for how long the old code keeps a key

var (
	ErrOtherRequest = errors.New("the key belongs to another request")                     // 422
	ErrInProgress   = errors.New("an old instance executes the key, or died while it did") // 409
)

// Place executes a request while instances of the old code may be running.
func Place(ctx context.Context, pool *pgxpool.Pool, tenant, key string, body []byte) (idem.Result, error) {
	hash := idem.Hash(sha256.Sum256(body))
	return idem.Do(ctx, pool, idem.Scope(tenant, "POST /orders"), key, hash, func(tx pgx.Tx) (idem.Response, error) {
		claimed, err := tx.Exec(ctx, `INSERT INTO idempotency_keys (tenant, key, request) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, tenant, key, hash[:])
		if err != nil {
			return idem.Response{}, err
		}
		if claimed.RowsAffected() == 0 {
			return answered(ctx, tx, tenant, key, hash)
		}
		response, err := order(ctx, tx, tenant, body)
		if err != nil {
			return idem.Response{}, err
		}
		_, err = tx.Exec(ctx, `UPDATE idempotency_keys SET status = $3, response = $4 WHERE tenant = $1 AND key = $2`, tenant, key, response.Status, response.Body)
		return response, err
	}, idem.WithTTL(keep))
}

// order writes the order.
func order(ctx context.Context, tx pgx.Tx, tenant string, body []byte) (idem.Response, error) {
	_, err := tx.Exec(ctx, `INSERT INTO orders (tenant, wanted) VALUES ($1, $2)`, tenant, body)
	return idem.Response{Status: 201, Body: []byte(`{"placed":true}`)}, err
}

// answered returns the response in the old table.
func answered(ctx context.Context, tx pgx.Tx, tenant, key string, hash idem.Hash) (idem.Response, error) {
	var same bool
	var status *int
	var response []byte
	err := tx.QueryRow(ctx, `SELECT request = $3, status, response FROM idempotency_keys WHERE tenant = $1 AND key = $2`, tenant, key, hash[:]).
		Scan(&same, &status, &response)
	switch {
	case err != nil:
		return idem.Response{}, err
	case !same:
		return idem.Response{}, ErrOtherRequest
	case status == nil:
		return idem.Response{}, ErrInProgress
	}
	return idem.Response{Status: *status, Body: response}, nil
}
