package ui

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/stats"
)

// overview is the data of the overview.
type overview struct {
	People, Records []record.Fact // what may need a person, and facts about the table of records
	Purge           []record.Fact
	Charts          []chart
	Inserted        bool // whether the charts count inserted records as executed calls

	sample sample // the figures for the charts; completeOverview adds further figures
	stats  stats.Stats
}

// readOverview reads the figures of idem stats. A statement that the role may not execute aborts
// the transaction, so nothing may be read in that transaction after readOverview.
func readOverview(ctx context.Context, tx pgx.Tx, _ url.Values) (any, error) {
	v, err := stats.Read(ctx, tx)
	if err != nil {
		return nil, err
	}
	o := overview{People: record.FactsOfPeople(&v), Records: record.FactsOfRecords(&v)}
	o.stats, o.sample = v, sampleOf(&v)
	for i := range v.Purge.Sweeps.Value {
		o.Purge = append(o.Purge, record.FactOfSweep(&v.Purge.Sweeps.Value[i], v.ReadAt))
	}
	return o, nil
}

// sampleOf returns the figures that have charts.
func sampleOf(v *stats.Stats) sample {
	one := sample{at: time.Now(), figures: map[string]float64{"in progress": float64(v.InFlight.Keys)}}
	if v.Operations.Known() {
		one.figures["in progress"] += float64(v.Operations.Value.Running)
		one.figures["parked"] = float64(v.Operations.Value.Parked)
	}
	if v.Messages.Known() {
		one.figures["dead"] = float64(v.Messages.Value.OutboxDead + v.Messages.Value.InboxDead)
	}
	return one
}

// completeOverview adds what needs further privileges: which processes run, and the charts. Each
// query has its own transaction, so that a missing privilege affects one figure only.
func completeOverview(ctx context.Context, s *site, data any) (any, error) {
	o := data.(overview)
	look := func(read func(tx pgx.Tx) error) error { return record.ReadOnly(ctx, s.Pool, s.Timeout, read) }
	o.People = append(o.People, workerFact(ctx, look, &o.stats), relayFact(ctx, look, &o.stats), s.examination.fact())
	var topics []record.Topic
	if look(func(tx pgx.Tx) (err error) { topics, _, err = record.Topics(ctx, tx, rows); return err }) == nil {
		o.sample.lag = map[string]float64{}
		for _, t := range topics {
			o.sample.lag[t.Name] = t.Oldest.Seconds()
		}
	}
	if s.Counts != nil {
		executed, replayed := s.Counts()
		o.sample.figures["executed"], o.sample.figures["replayed"] = float64(executed), float64(replayed)
	} else {
		var inserted int64
		if look(func(tx pgx.Tx) (err error) { inserted, err = record.Inserted(ctx, tx); return err }) == nil {
			o.sample.figures["executed"] = float64(inserted)
		}
	}
	o.Charts, o.Inserted = charts(s.history.add(o.sample)), s.Counts == nil
	return o, nil
}

// workerFact says whether a Worker runs. The fact is a warning if no Worker runs and operations are
// overdue.
func workerFact(ctx context.Context, look func(func(pgx.Tx) error) error, v *stats.Stats) record.Fact {
	f := record.Fact{Name: "Workers", Value: "at least one runs", Link: "operations?state=running"}
	var workers record.Workers
	err := look(func(tx pgx.Tx) (err error) { workers, err = record.ReadWorkers(ctx, tx); return err })
	switch {
	case err != nil:
		f.Value = "unknown"
	case workers.Guards == 0 && workers.Leased > 0:
		f.Value, f.Note = "not seen", fmt.Sprintf("%d processes behind a pooler may run one", workers.Leased)
	case workers.Guards == 0:
		f.Value, f.Mood = "none runs", record.MoodIf(v.Operations.Value.OverdueFor > 0, "warn")
	}
	return f
}

// relayFact says whether a relay runs. The fact is a warning if no relay runs and messages wait.
func relayFact(ctx context.Context, look func(func(pgx.Tx) error) error, v *stats.Stats) record.Fact {
	f := record.Fact{Name: "Relays", Link: "messages"}
	var lanes int
	switch err := look(func(tx pgx.Tx) (err error) { lanes, err = record.Relays(ctx, tx); return err }); {
	case err != nil:
		f.Value = "unknown"
	case lanes == 0:
		f.Value, f.Mood = "none runs", record.MoodIf(v.Messages.Value.Oldest > 0, "warn")
	default:
		f.Value, f.Note = "at least one runs", fmt.Sprintf("for %d of %d lanes", lanes, record.Lanes)
	}
	return f
}
