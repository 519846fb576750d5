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
		encode = func(tx pgx.Tx) (resp Response, err error) {
			resp, value, err = jsonResponse(fn(tx))
			return resp, err
		}
	}
	result, err := Do(ctx, pool, scope, key, hash, encode, opts...)
	if err == nil && !result.Rejected && !result.Replayed {
		return value, result, nil
	}
	var replayed T
	if err == nil && !result.Rejected {
		err = decodeJSON(result.Body, &replayed)
	}
	return replayed, result, err
}

// jsonResponse returns the response that stores the value of fn, and the value as a replay will show it: one that could
// not be shown again must not be committed.
func jsonResponse[T any](value T, err error) (resp Response, stored T, _ error) {
	if err != nil {
		return resp, stored, err
	}
	body, err := json.Marshal(value)
	if err != nil {
		return resp, stored, fmt.Errorf("idem: the result of fn cannot be encoded: %w", err)
	}
	err = decodeJSON(body, &stored)
	return Response{Status: 200, Body: body}, stored, err
}

func decodeJSON[T any](body []byte, value *T) error {
	var decoded T
	if err := json.Unmarshal(body, &decoded); err != nil {
		return fmt.Errorf("idem: the stored response does not decode into %T: %w", value, err)
	}
	*value = decoded
	return nil
}
