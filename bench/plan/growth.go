package plan

import (
	"context"
	"strconv"

	"github.com/idem-go/idem/bench/arena"
	"github.com/idem-go/idem/bench/contestant"
	"github.com/idem-go/idem/bench/measure"
	"github.com/idem-go/idem/bench/result"
)

// growth measures first runs and replays with more and more records in the table.
func (s *Session) growth(ctx context.Context, lane *arena.Lane, l leg) error {
	var seats []*seat
	for _, records := range l.growth {
		booth, err := lane.Open(ctx, contestant.Idem())
		if err != nil {
			return err
		}
		s.Say("            loading %d records", records)
		if err := booth.Load(ctx, records); err != nil {
			return err
		}
		seats = append(seats, &seat{name: named(records), booth: booth})
	}
	for _, c := range []cell{
		{work: First, business: Insert, clients: 1, response: Small}, {work: First, business: Insert, clients: 8, response: Small},
		{work: Replay, business: Insert, clients: 1, response: Small},
	} {
		if err := s.grown(ctx, l, c, seats); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) grown(ctx context.Context, l leg, c cell, seats []*seat) error {
	done := result.Cell{Name: c.name(l), Setting: c.setting(l), Unit: seats[0].name}
	for _, each := range seats {
		each.turns, each.err = nil, arena.Clear(ctx, each.booth.Pool)
		each.source = measure.NewSource(s.random.Uint64(), c.statements(), c.response)
		if c.work == Replay && each.err == nil {
			each.source.Keys, each.err = each.booth.Sample(ctx, 20000)
		}
		if each.err == nil {
			each.err = measure.Run(ctx, each.booth.Runner, each.source, c.clients, measure.Limit{Ops: 400 / c.clients}).Err
		}
	}
	if err := s.interleave(ctx, seats, c.clients, s.pace(c)); err != nil {
		return err
	}
	for _, each := range seats {
		done.Entries = append(done.Entries, each.entry(ctx, c))
		if each.err != nil {
			s.note("%s: %s: %v", done.Name, each.name, each.err)
		}
	}
	s.results.Cells = append(s.results.Cells, done)
	return nil
}

// named spells a number of records as the report shows it.
func named(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits + " records"
}
