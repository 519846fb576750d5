package contestant

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Phases is a port of the atomic phases that Brandur Leach describes in "Implementing Stripe-like
// Idempotency Keys in Postgres" (brandur.org/idempotency-keys).
//
// The first SERIALIZABLE transaction claims the key by setting locked_at. Each further transaction
// advances recovery_point. The business here calls no foreign system, so two phases are enough, the
// minimum of the pattern: the second phase commits effect and response.
//
// A process that dies between the two phases leaves the key locked until the lease of 90 seconds
// ends. Duplicates are refused meanwhile. The response is stored as bytes, because the jsonb of the
// article would not return the same bytes.
func Phases() Contestant {
	return Contestant{
		Name: NamePhases, Tables: []string{"idempotency_keys"},
		Open: func(ctx context.Context, place Place) (Runner, error) {
			_, err := place.Pool.Exec(ctx, `create table idempotency_keys (
				id bigserial primary key, created_at timestamptz not null default now(),
				idempotency_key text not null check (char_length(idempotency_key) <= 100),
				last_run_at timestamptz not null default now(), locked_at timestamptz default now(),
				request_method text not null, request_params jsonb not null, request_path text not null,
				response_code int, response_body bytea, recovery_point text not null, user_id bigint not null);
				create unique index on idempotency_keys (user_id, idempotency_key)`)
			return phases{pooled{place.Pool}}, err
		},
	}
}

type phases struct{ pooled }

const (
	lease    = 90 * time.Second
	started  = "started"
	finished = "finished"
	userID   = 1
)

// row is the state of a key that the first phase has read.
type row struct {
	id       int64
	locked   *time.Time
	same     bool // the parameters of the call are the recorded ones
	recovery string
	body     []byte
}

func (p phases) Do(ctx context.Context, call Call) (Answer, error) {
	var key row
	var answer Answer
	err := p.phase(ctx, func(tx pgx.Tx) (err error) {
		key, answer, err = p.claim(ctx, tx, call)
		return err
	})
	if conflict(err) {
		return Answer{Refused: true}, nil // the article answers 409
	}
	if err != nil || answer.Replayed || answer.Refused {
		return answer, err
	}
	err = p.phase(ctx, func(tx pgx.Tx) error {
		if err := call.Execute(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "update idempotency_keys set recovery_point = $2, response_code = $3, response_body = $4, locked_at = null where id = $1",
			key.id, finished, 201, call.Body)
		return err
	})
	return Answer{Body: call.Body}, err
}

func (p phases) claim(ctx context.Context, tx pgx.Tx, call Call) (row, Answer, error) {
	var found row
	err := tx.QueryRow(ctx, "select id, locked_at, request_params = $3::text::jsonb, recovery_point, response_body from idempotency_keys where user_id = $1 and idempotency_key = $2",
		userID, call.Key, Payload).Scan(&found.id, &found.locked, &found.same, &found.recovery, &found.body)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err := tx.QueryRow(ctx, `insert into idempotency_keys (idempotency_key, locked_at, recovery_point, request_method, request_params, request_path, user_id)
			values ($1, now(), $2, 'POST', $3::text::jsonb, '/orders', $4) returning id`, call.Key, started, Payload, userID).Scan(&found.id)
		return found, Answer{}, err
	case err != nil:
		return row{}, Answer{}, err
	case !found.same:
		return row{}, Answer{}, fmt.Errorf("key %.4s…: other parameters", call.Key)
	case found.recovery == finished:
		return found, Answer{Body: found.body, Replayed: true}, nil
	case found.locked != nil && time.Since(*found.locked) < lease:
		return found, Answer{Refused: true}, nil
	}
	_, err = tx.Exec(ctx, "update idempotency_keys set last_run_at = now(), locked_at = now() where id = $1", found.id)
	return found, Answer{}, err
}

// phase runs one phase and retries serialization failures. The article leaves these retries to the
// client. Here they happen at once, so that the client gets an answer as from the other
// contestants.
func (p phases) phase(ctx context.Context, do func(pgx.Tx) error) error {
	const attempts = 20
	for attempt := 1; ; attempt++ {
		err := pgx.BeginTxFunc(ctx, p.pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, do)
		if attempt == attempts || !conflict(err) {
			return err
		}
		time.Sleep(rand.N(time.Duration(attempt) * time.Millisecond))
	}
}

// conflict reports whether err is a conflict of two transactions.
func conflict(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "40001" || pgErr.Code == "23505")
}
