package contestant

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// River inserts a unique job with the key in the transaction of the business. If the job is a
// duplicate, the effect already exists. This is atomic, and a crash leaves nothing locked. A
// duplicate gets no response, only the information that it is a duplicate. The payload is not
// compared, because uniqueness depends on the key alone. When River deletes the job, the key can be
// executed again.
func River() Contestant {
	return Contestant{
		Name: NameRiver, Forgets: true, Tables: []string{"river_job"},
		Open: openRiver,
	}
}

func openRiver(ctx context.Context, place Place) (Runner, error) {
	driver := riverpgxv5.New(place.Pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	client, err := river.NewClient(driver, &river.Config{})
	return riverRunner{pooled{place.Pool}, client}, err
}

type riverRunner struct {
	pooled
	client *river.Client[pgx.Tx]
}

type orderArgs struct {
	Key string `json:"key"`
}

func (orderArgs) Kind() string { return "order" }

func (r riverRunner) Do(ctx context.Context, call Call) (Answer, error) {
	err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		inserted, err := r.client.InsertTx(ctx, tx, orderArgs{call.Key}, &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}})
		if err != nil {
			return err
		}
		if inserted.UniqueSkippedAsDuplicate {
			return errReplay
		}
		return call.Execute(ctx, tx)
	})
	if errors.Is(err, errReplay) {
		return Answer{Replayed: true}, nil
	}
	return Answer{Body: call.Body}, err
}
