package idem

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DoJSON is Do for a fn that answers with a value instead of a response. The value is stored as JSON, with status 200, and
// what is returned is always decoded from what is stored, so that the first caller and its duplicates get the same. If
// Result.Rejected is true the value is the zero T and the answer is in Result.Response.
//
// If a stored response no longer decodes into T, the Result is returned together with the error.
func DoJSON[T any](ctx context.Context, pool *pgxpool.Pool, scope, key string, hash Hash, fn func(tx pgx.Tx) (T, error), opts ...Option) (T, Result, error) {
	var value T
	var encode func(tx pgx.Tx) (Response, error)
	if fn != nil {
		encode = func(tx pgx.Tx) (Response, error) { return jsonResponse(fn(tx)) }
	}
	result, err := Do(ctx, pool, scope, key, hash, encode, opts...)
	if err != nil || result.Rejected {
		return value, result, err
	}
	if err := json.Unmarshal(result.Body, &value); err != nil {
		var zero T
		return zero, result, fmt.Errorf("idem: the stored response is no %T: %w", zero, err)
	}
	return value, result, nil
}

func jsonResponse[T any](value T, err error) (Response, error) {
	if err != nil {
		return Response{}, err
	}
	body, err := json.Marshal(value)
	if err != nil {
		return Response{}, fmt.Errorf("idem: the result of fn cannot be encoded: %w", err)
	}
	return Response{Status: 200, Body: body}, nil
}
