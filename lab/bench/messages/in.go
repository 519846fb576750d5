package messages

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
)

// consumer is a consuming contestant on its database.
type consumer struct {
	in.Contestant
	plan
	dsn     string
	workers int
	doubled int // doubled effects in all turns
}

func (p plan) consumer(c in.Contestant, workers int) runner.Contestant {
	return runner.Contestant{Name: c.Name, Open: func(ctx context.Context, s *runner.Server) (runner.Seat, error) {
		dsn, err := s.Database(ctx, in.Schema, c.Prepare)
		return &consumer{c, p, dsn, workers, 0}, err
	}}
}

// Take measures how many messages per second have their effect. It counts each message once, and
// only messages that arrive within the turn.
func (c *consumer) Take(ctx context.Context) (result.Values, error) {
	if err := runner.Reset(ctx, c.dsn, "effects"); err != nil {
		return nil, err
	}
	pool, err := runner.Pool(ctx, c.dsn, poolSize)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	warm := broker.NewSource(c.warm*c.workers, 0)
	if err := c.consume(ctx, pool, warm); err != nil {
		return nil, err
	}
	begin := time.Now()
	source := broker.NewSource(1<<30, c.turn)
	if err := c.consume(ctx, pool, source); err != nil {
		return nil, err
	}
	values := result.Values{"per_s": float64(source.Made()) / time.Since(begin).Seconds()}
	all := warm.Made() + source.Made()
	found, err := tally(ctx, c.dsn, all)
	c.doubled += found.doubled
	// No process was killed, so that no message may be lost.
	if err == nil && (found.lost > 0 || found.doubled > 0 && !c.Repeats) {
		err = fmt.Errorf("of %d messages %d have no effect and %d more than one", all, found.lost, found.doubled)
	}
	return values, err
}

func (c *consumer) consume(ctx context.Context, pool *pgxpool.Pool, source *broker.Source) error {
	return c.Consume(ctx, in.Place{Pool: pool, Source: source.Open(), Workers: c.workers, Batch: c.batch})
}

// Finish returns the number of doubled effects.
func (c *consumer) Finish(context.Context) (result.Values, error) {
	return result.Values{"doubled": float64(c.doubled)}, nil
}

// Close does nothing: each turn closes what it has opened.
func (c *consumer) Close() error { return nil }

// tallied counts the messages without an effect and with several effects.
type tallied struct{ lost, doubled int }

func tally(ctx context.Context, dsn string, made int) (tallied, error) {
	had, err := runner.Count(ctx, dsn, "select count(distinct message) from effects")
	if err != nil {
		return tallied{}, err
	}
	doubled, err := runner.Count(ctx, dsn, "select count(*) from (select from effects group by message having count(*) > 1) twice")
	return tallied{made - had, doubled}, err
}
