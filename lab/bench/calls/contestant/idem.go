package contestant

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// Idem is this library. Key, effect and response are committed in one transaction. The row of a key
// in progress is not committed, so that the key is free again when its transaction ends, whatever
// the reason. Duplicates wait without a connection and receive the response. Another payload under
// the same key is refused.
func Idem() Contestant { return idemContestant(NameIdem, idemRunner{}) }

// IdemBatch is Idem with a function that sends its statements in one batch.
func IdemBatch() Contestant { return idemContestant(NameIdemBatch, idemRunner{batch: true}) }

// IdemHinted is Idem with the option for likely replays, such as the second attempt of a client.
func IdemHinted() Contestant {
	return idemContestant(NameIdemHinted, idemRunner{options: []idem.Option{idem.WithReplayLikely()}})
}

func idemContestant(name string, runner idemRunner) Contestant {
	return Contestant{
		Name: name, Tables: []string{"idem.records"},
		Open: func(_ context.Context, place Place) (Runner, error) {
			runner.pooled = pooled{place.Pool}
			return runner, nil
		},
	}
}

type idemRunner struct {
	pooled
	batch   bool
	options []idem.Option
}

// Scope is the scope of all keys.
const Scope = "tenant-1/POST /orders"

func (r idemRunner) Do(ctx context.Context, call Call) (Answer, error) {
	res, err := idem.Do(ctx, r.pool, Scope, call.Key, HashOf(call), func(tx pgx.Tx) (idem.Response, error) {
		return idem.Response{Status: 201, Body: call.Body}, r.execute(ctx, tx, call)
	}, r.options...)
	return Answer{Body: res.Body, Replayed: res.Replayed}, err
}

func (r idemRunner) execute(ctx context.Context, tx pgx.Tx, call Call) error {
	if !r.batch {
		return call.Execute(ctx, tx)
	}
	batch := &pgx.Batch{}
	call.queue(batch)
	err := tx.SendBatch(ctx, batch).Close()
	call.hold()
	return err
}

// Payload is the payload of all requests. A repetition is recognized by its key alone.
const Payload = `{"customer":7,"total":4900}`

// HashOf returns the fingerprint of the request.
func HashOf(Call) idem.Hash { return idem.HashBytes([]byte(Payload)) }
