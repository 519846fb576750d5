package calls

import (
	"context"
	"errors"
	"slices"

	"github.com/idem-go/idem/lab/bench/calls/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
)

// costs measures what a call costs apart from time: WAL, storage and round trips. It also measures
// how often simultaneous duplicates are executed or refused. Each contestant is open only while it
// is measured, because its background work would be counted for the others too.
func costs(who contestant.Contestant, seed uint64) runner.Contestant {
	return runner.Once(who.Name, func(ctx context.Context, s *runner.Server) (values result.Values, err error) {
		b, err := open(ctx, s, who, way{conns: poolSize})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		m := meter{b, cell{}.source(seed), result.Values{}}
		for _, measure := range []func(context.Context) error{m.wal, m.storage, m.races} {
			if err := measure(ctx); err != nil {
				return nil, err
			}
		}
		return m.values, countTrips(ctx, s, who, seed, m.values)
	})
}

// meter measures the costs of the contestant in its booth and collects the values.
type meter struct {
	*booth
	keys   *source
	values result.Values
}

// calls makes n calls with new or repeated keys, one after another.
func (m meter) calls(ctx context.Context, n int) error {
	_, err := m.load(ctx, m.keys, 1, runner.Limit{Calls: n})
	return err
}

// wal measures the bytes of WAL per call with a new key. It takes the median of several batches of
// calls, to exclude what the server writes in the background.
func (m meter) wal(ctx context.Context) error {
	const batches, calls = 5, 100
	// Warm up: after a checkpoint, the first write to a page logs the whole page. These calls are
	// not measured.
	if err := m.calls(ctx, calls); err != nil {
		return err
	}
	var all []float64
	for range batches {
		_, bytes, err := m.server.Logged(ctx, func() error { return m.calls(ctx, calls) })
		if err != nil {
			return err
		}
		all = append(all, bytes/calls)
	}
	slices.Sort(all)
	m.values["wal_first"] = all[batches/2]
	return nil
}

// storage measures the bytes that a record occupies, including its index entries and the dead
// tuples of updates.
func (m meter) storage(ctx context.Context) error {
	if m.Tables == nil {
		return nil
	}
	const records, clients = 2000, 8
	before, err := m.size(ctx)
	if err != nil {
		return err
	}
	if _, err := m.load(ctx, m.keys, clients, runner.Limit{Calls: records / clients}); err != nil {
		return err
	}
	after, err := m.size(ctx)
	m.values["stored"] = (after - before) / records
	return err
}

// races starts 32 simultaneous calls with the same key. It does so for ten keys and counts all
// executions and refusals.
func (m meter) races(ctx context.Context) error {
	const races, calls = 10, 32
	before, err := count(ctx, m.pool)
	if err != nil {
		return err
	}
	m.values["refused"] = 0
	for _, key := range m.keys.take(races) {
		same := m.keys.fork()
		same.keys = []string{key}
		s, err := m.load(ctx, same, calls, runner.Limit{Calls: 1})
		if err != nil {
			return err
		}
		m.values["refused"] += float64(s.refused)
	}
	after, err := count(ctx, m.pool)
	m.values["executed"] = float64(after.Orders - before.Orders)
	return err
}

// countTrips counts the round trips per call with a proxy. It uses a pool of one connection, so
// that after a few calls every statement is prepared on that connection. A contestant that needs
// additional connections gets a pool of the normal size.
func countTrips(ctx context.Context, s *runner.Server, who contestant.Contestant, seed uint64, values result.Values) (err error) {
	conns := 1
	if who.Listens {
		conns = poolSize
	}
	b, err := open(ctx, s, who, way{counted: true, conns: conns})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	each := func(m meter) (float64, error) {
		const warm, calls = 5, 20
		if err := errors.Join(m.calls(ctx, warm), b.settle(ctx)); err != nil {
			return 0, err
		}
		b.trips()
		err := errors.Join(m.calls(ctx, calls), b.settle(ctx))
		return float64(b.trips()) / calls, err
	}
	m := meter{b, cell{}.source(seed + 1), values}
	if values["trips_first"], err = each(m); err != nil || who.Recordless {
		return err
	}
	again := meter{b, m.keys.fork(), values}
	if err := b.prime(ctx, again.keys, 20); err != nil {
		return err
	}
	values["trips_replay"], err = each(again)
	return err
}
