package contestant

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// Idem is this library. It commits key, effect and response in one transaction. While a call is in
// progress, its key is not committed. If the transaction ends without a commit, for whatever
// reason, the key is free again. Duplicates wait without a connection and receive the response.
// Another payload under the same key is refused.
var Idem = Contestant{Name: "idem.Do", Tables: []string{"idem.records"}, Open: pooled(doIdem)}

func doIdem(ctx context.Context, pool *pgxpool.Pool, call Call) (Answer, error) {
	return executed(ctx, pool, call, call.Execute)
}

// IdemBatch is the contestant Idem with a function that sends its statements in one batch.
var IdemBatch = Contestant{Name: "idem.Do, batch in fn", Tables: Idem.Tables, Open: pooled(
	func(ctx context.Context, pool *pgxpool.Pool, call Call) (Answer, error) {
		return executed(ctx, pool, call, func(ctx context.Context, tx pgx.Tx) error {
			batch := &pgx.Batch{}
			call.queue(batch)
			err := tx.SendBatch(ctx, batch).Close()
			call.hold()
			return err
		})
	})}

// IdemHinted is the contestant Idem with the option WithReplayLikely, which is meant for calls that
// are probably replays, such as the second attempt of a client.
var IdemHinted = Contestant{Name: "idem.Do, replay likely", Tables: Idem.Tables, Open: pooled(
	func(ctx context.Context, pool *pgxpool.Pool, call Call) (Answer, error) {
		return executed(ctx, pool, call, call.Execute, idem.WithReplayLikely())
	})}

// Scope is the scope of all keys in this benchmark.
const Scope = "tenant-1/POST /orders"

// executed calls idem.Do with a function that runs execute and returns the body of call as the
// response.
func executed(
	ctx context.Context, pool *pgxpool.Pool, call Call, execute func(context.Context, pgx.Tx) error, options ...idem.Option,
) (Answer, error) {
	res, err := idem.Do(ctx, pool, Scope, call.Key, HashOf(call), func(tx pgx.Tx) (idem.Response, error) {
		return idem.Response{Status: 201, Body: call.Body}, execute(ctx, tx)
	}, options...)
	return Answer{Body: res.Body, Replayed: res.Replayed}, err
}

// Payload is the payload of all requests. Only the key distinguishes two requests.
const Payload = `{"customer":7,"total":4900}`

// HashOf returns the hash of the payload, which is the same for all calls.
func HashOf(Call) idem.Hash { return idem.HashBytes([]byte(Payload)) }
