package messages

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
)

// consumer returns a runner.Contestant that consumes messages with c and the given number of
// workers.
func (p plan) consumer(c in.Contestant, workers int) runner.Contestant {
	return runner.Contestant{Name: c.Name, Open: func(ctx context.Context, s *runner.Server) (runner.Seat, error) {
		dsn, err := s.Database(ctx, in.Schema, c.Prepare)
		var doubled int // number of doubled effects in all measurements
		take := func(ctx context.Context) (result.Values, error) {
			values, n, err := p.consume(ctx, c, dsn, workers)
			doubled += n
			return values, err
		}
		finish := func(context.Context) (result.Values, error) { return result.Values{"doubled": float64(doubled)}, nil }
		return runner.Seat{Take: take, Finish: finish}, err
	}}
}

// consume measures how many messages per second get their effect. It counts each distinct message
// once. It also returns the number of messages with more than one effect.
func (p plan) consume(ctx context.Context, c in.Contestant, dsn string, workers int) (values result.Values, doubled int, err error) {
	if err := runner.Reset(ctx, dsn, "effects"); err != nil {
		return nil, 0, err
	}
	pool, err := runner.Pool(ctx, dsn, poolSize)
	if err != nil {
		return nil, 0, err
	}
	defer pool.Close()
	consume := func(source *broker.Source) error {
		return c.Consume(ctx, in.Place{Pool: pool, Source: source.Open(), Workers: workers, Batch: p.batch})
	}
	warm := broker.NewSource(p.warm*workers, 0)
	if err := consume(warm); err != nil {
		return nil, 0, err
	}
	begin := time.Now()
	source := broker.NewSource(1<<30, p.turn)
	if err := consume(source); err != nil {
		return nil, 0, err
	}
	values = result.Values{"per_s": float64(source.Made()) / time.Since(begin).Seconds()}
	all := warm.Made() + source.Made()
	lost, doubled, err := tally(ctx, dsn, all)
	// No message may be lost, because no process was killed.
	if err == nil && (lost > 0 || doubled > 0 && !c.Repeats) {
		err = fmt.Errorf("of %d messages %d have no effect and %d more than one", all, lost, doubled)
	}
	return values, doubled, err
}

// tally counts the messages without an effect (lost) and with several effects (doubled). made is
// the number of all messages.
func tally(ctx context.Context, dsn string, made int) (lost, doubled int, err error) {
	var had int
	err = runner.Scan(ctx, dsn, `select count(distinct message),
		(select count(*) from (select from effects group by message having count(*) > 1) twice) from effects`, &had, &doubled)
	return made - had, doubled, err
}
