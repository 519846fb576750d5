package contestant

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/bench/runner"
)

// Phases is a port of the atomic phases that Brandur Leach describes in "Implementing Stripe-like
// Idempotency Keys in Postgres" (brandur.org/idempotency-keys). A first SERIALIZABLE transaction
// claims the key. A second transaction reserves the order and advances the recovery point, the name
// of the last completed phase. A third transaction confirms the order and stores the response.
//
// The article makes its call inside a phase, with an open transaction. Here the call is made
// between two phases, which is cheaper. A background loop in every process, the completer, resumes
// keys that were locked more than 90 seconds ago. A call that takes longer is made twice.
var Phases = Contestant{
	Name: "atomic phases, by hand",
	Prepare: func(ctx context.Context, dsn string) error {
		return runner.Execute(ctx, dsn, `create table idempotency_keys (
			id bigserial primary key, created_at timestamptz not null default now(),
			idempotency_key text not null check (char_length(idempotency_key) <= 100),
			last_run_at timestamptz not null default now(), locked_at timestamptz default now(),
			request_method text not null, request_params jsonb not null, request_path text not null,
			response_code int, response_body bytea, recovery_point text not null, user_id bigint not null);
			create unique index on idempotency_keys (user_id, idempotency_key);
			create index on idempotency_keys (locked_at) where recovery_point <> 'finished'`)
	},
	Open: func(_ context.Context, place Place) (Do, error) {
		p := &phases{Place: place, lock: cmp.Or(place.Patience, 90*time.Second)}
		ctx, stop := context.WithCancel(context.Background())
		p.completer.Go(func() { p.complete(ctx) })
		place.Cleanup(func() { stop(); p.completer.Wait() })
		return p.do, nil
	},
}

type phases struct {
	Place
	lock      time.Duration
	completer sync.WaitGroup
}

var errKeyTaken = errors.New("the key is taken")

func (p *phases) do(ctx context.Context, order string) error {
	var id int64
	err := p.phase(ctx, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `insert into idempotency_keys (idempotency_key, recovery_point, request_method, request_params, request_path, user_id)
			values ($1, 'started', 'POST', '{"customer":7,"total":4900}', '/orders', 1) on conflict do nothing returning id`, order).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return errKeyTaken
		}
		return err
	})
	if err != nil {
		return err
	}
	return p.goOn(ctx, id, order, "started")
}

// goOn runs the phases that remain after the phase that is named in the parameter point.
func (p *phases) goOn(ctx context.Context, id int64, order, point string) error {
	if point == "started" {
		err := p.phase(ctx, func(tx pgx.Tx) error {
			if err := reserve(ctx, tx, order); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "update idempotency_keys set recovery_point = 'reserved' where id = $1", id)
			return err
		})
		if err != nil {
			return err
		}
	}
	charge, err := p.Bank.Charge(ctx, order, keyOf(order))
	if err != nil {
		return err
	}
	return p.phase(ctx, func(tx pgx.Tx) error {
		if err := confirm(ctx, tx, order, charge); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "update idempotency_keys set recovery_point = 'finished', response_code = 201, response_body = $2, locked_at = null where id = $1", id, []byte(charge))
		return err
	})
}

// complete runs until ctx ends. About once a second, it resumes up to 16 unfinished keys that were
// locked too long ago.
func (p *phases) complete(ctx context.Context) {
	for {
		select {
		case <-time.After(time.Second - rand.N(time.Second/4)):
		case <-ctx.Done():
			return
		}
		rows, err := p.Pool.Query(ctx, `update idempotency_keys set locked_at = now(), last_run_at = now() where id in (
				select id from idempotency_keys where recovery_point <> 'finished' and locked_at < now() - $1::interval limit 16 for update skip locked)
			returning id, idempotency_key, recovery_point`, p.lock)
		if err != nil {
			continue
		}
		left, err := pgx.CollectRows(rows, pgx.RowToStructByPos[abandoned])
		if err != nil {
			continue
		}
		for _, a := range left {
			p.completer.Go(func() { _ = p.goOn(ctx, a.ID, a.Order, a.Point) })
		}
	}
}

// abandoned is an unfinished key that was locked too long ago. Point is its recovery point, the
// name of the last completed phase.
type abandoned struct {
	ID           int64
	Order, Point string
}

// phase runs do in one SERIALIZABLE transaction. It retries serialization failures after a short
// random delay.
func (p *phases) phase(ctx context.Context, do func(pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := pgx.BeginTxFunc(ctx, p.Pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, do)
		if ctx.Err() != nil || !conflict(err) {
			return err
		}
		time.Sleep(rand.N(time.Duration(min(attempt, 20)) * time.Millisecond))
	}
}

// conflict reports whether err is a serialization failure (SQLSTATE 40001).
func conflict(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "40001"
}
