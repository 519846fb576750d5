package plan

import (
	"context"

	"github.com/idem-go/idem/lab/bench/arena"
	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

// growth measures first runs and replays with more and more records in the table.
func (s *Session) growth(ctx context.Context, lane *arena.Lane, l leg) error {
	var seats []*seat
	source := measure.NewSource(s.seed(result.Growth), contestant.OneInsert, result.Small)
	pattern := source.Template
	pattern.Key = source.Take(1)[0]
	for _, records := range l.growth {
		booth, err := lane.Open(ctx, contestant.Idem())
		if err != nil {
			return err
		}
		s.Say("            loading %d records", records)
		if err := booth.Load(ctx, records, pattern); err != nil {
			return err
		}
		seats = append(seats, &seat{name: result.Grouped(float64(records)) + " records", records: records, booth: booth})
	}
	for _, point := range result.GrowthPoints() {
		if err := s.grown(ctx, l, cell{Point: point}, seats); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) grown(ctx context.Context, l leg, c cell, seats []*seat) error {
	done := result.Cell{Name: c.Name(), Setting: c.setting(l), Unit: seats[0].name}
	for _, each := range seats {
		each.samples, each.err = nil, arena.Clear(ctx, each.booth.Pool)
		each.source = measure.NewSource(s.seed(c.Name()), c.statements(), c.Bytes())
		if c.Work == result.Replay && each.err == nil {
			each.source.Keys, each.err = each.booth.Sample(ctx, 20000)
		}
		if each.err == nil {
			each.err = measure.Run(ctx, each.booth.Runner, each.source, c.Clients, measure.Limit{Ops: 400 / c.Clients}).Err
		}
	}
	if err := s.interleave(ctx, seats, c, s.pace(c)); err != nil {
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
