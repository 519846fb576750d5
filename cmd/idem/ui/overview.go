package ui

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/stats"
)

// fact is a figure for display.
type fact struct {
	Name, Value, Note string
	Mood              string // bad, warn or empty
	Link              string // the page with details
}

// overview is the data of the overview.
type overview struct {
	People, Records []fact // what may need a person, and facts about the table of records
	Purge           []purged
	Charts          []chart
	CountsReplays   bool

	sample sample // completeOverview adds figures
	stats  stats.Stats
}

// purged is the progress of the purge of a table.
type purged struct{ Name, State, Mood string }

// readOverview reads the figures of idem stats. A statement that the role may not execute aborts
// the transaction, so readOverview must be the last reader in it.
func readOverview(ctx context.Context, tx pgx.Tx, _ url.Values) (any, error) {
	v, err := stats.Read(ctx, tx)
	if err != nil {
		return nil, err
	}
	o := overview{People: append(operationFacts(v.Operations), append(messageFacts(v.Messages), flightFact(v.InFlight))...), Records: recordFacts(&v)}
	o.stats, o.sample = v, sampleOf(&v)
	for i := range v.Purge.Sweeps.Value {
		o.Purge = append(o.Purge, purgedOf(&v.Purge.Sweeps.Value[i], v.ReadAt))
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
	look := func(read func(tx pgx.Tx) error) error { return record.Look(ctx, s.Pool, s.Timeout, read) }
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
	o.Charts, o.CountsReplays = charts(s.history.add(o.sample)), s.Counts != nil
	return o, nil
}

// workerFact says whether a Worker runs. If none runs and operations are overdue, it is a warning.
func workerFact(ctx context.Context, look func(func(pgx.Tx) error) error, v *stats.Stats) fact {
	f := fact{Name: "Workers", Value: "at least one runs", Link: "flight"}
	var workers record.Workers
	err := look(func(tx pgx.Tx) (err error) { workers, err = record.ReadWorkers(ctx, tx); return err })
	switch {
	case err != nil:
		f.Value = "unknown"
	case workers.Guards == 0 && workers.Leased > 0:
		f.Value, f.Note = "not seen", fmt.Sprintf("%d processes behind a pooler may run one", workers.Leased)
	case workers.Guards == 0:
		f.Value, f.Mood = "none runs", moodIf(v.Operations.Value.OverdueFor > 0, "warn")
	}
	return f
}

// relayFact says whether a relay runs. If none runs and messages wait, it is a warning.
func relayFact(ctx context.Context, look func(func(pgx.Tx) error) error, v *stats.Stats) fact {
	f := fact{Name: "Relays", Link: "messages"}
	var lanes int
	switch err := look(func(tx pgx.Tx) (err error) { lanes, err = record.Relays(ctx, tx); return err }); {
	case err != nil:
		f.Value = "unknown"
	case lanes == 0:
		f.Value, f.Mood = "none runs", moodIf(v.Messages.Value.Oldest > 0, "warn")
	default:
		f.Value, f.Note = "at least one runs", fmt.Sprintf("for %d of %d lanes", lanes, record.Lanes)
	}
	return f
}

func operationFacts(f stats.Figure[stats.Operations]) []fact {
	if !f.Known() {
		return []fact{{Name: "Operations", Value: "unknown", Note: f.Note}}
	}
	parked := fact{Name: "Parked operations", Value: page.Count(f.Value.Parked), Link: "operations", Note: "no operation is parked"}
	if f.Value.Parked > 0 {
		parked.Mood, parked.Note = "bad", "the first for "+page.Age(f.Value.ParkedFor)
	}
	running := fact{Name: "Running operations", Value: page.Count(f.Value.Running), Link: "operations?state=running"}
	if f.Value.OverdueFor > 0 {
		running.Mood, running.Note = "warn", "one has been due for "+page.Age(f.Value.OverdueFor)+", and no process works on it"
	}
	return []fact{parked, running}
}

func messageFacts(f stats.Figure[stats.Messages]) []fact {
	if !f.Known() {
		return []fact{{Name: "Messages", Value: "unknown", Note: f.Note}}
	}
	m := f.Value
	waiting := fact{Name: "Messages to publish", Value: atLeast(m.Waiting), Link: "messages", Note: "nothing waits"}
	if m.Oldest > 0 {
		waiting.Note = "the oldest for " + page.Age(m.Oldest)
	}
	held := fact{Name: "Held back", Value: atLeast(m.Held), Link: "messages", Mood: moodIf(m.Held > 0, "warn")}
	delayed := fact{Name: "Not due yet", Value: atLeast(m.Delayed), Link: "messages?state=delayed"}
	dead := fact{Name: "Dead letters", Value: fmt.Sprintf("%s + %s", atLeast(m.OutboxDead), atLeast(m.InboxDead)),
		Note: "of the outbox, and of consumers", Link: "dead", Mood: moodIf(m.OutboxDead+m.InboxDead > 0, "bad")}
	failing := fact{Name: "Failing at a consumer", Value: "none", Link: "messages"}
	if m.FailingFor > 0 {
		failing.Value, failing.Mood = "for "+page.Age(m.FailingFor), "warn"
	}
	return []fact{waiting, held, delayed, dead, failing}
}

func flightFact(f stats.InFlight) fact {
	one := fact{Name: "Keys in flight", Value: page.Count(f.Keys), Link: "flight", Note: "no transaction holds a key"}
	if f.Transactions > 0 {
		one.Note = fmt.Sprintf("in %s transactions, the oldest for %s", page.Count(f.Transactions), figure(f.Oldest, page.Age).Value)
	}
	return one
}

func recordFacts(v *stats.Stats) []fact {
	named := func(name string, f fact) fact { f.Name = name; return f }
	return []fact{
		named("Records", figure(v.Records.Count, page.Count)),
		named("Expired", figure(v.Records.Expired, page.Count)),
		named("Oldest expired", figure(v.Records.OldestExpired, page.Age)),
		{Name: "Size", Value: page.Bytes(v.Records.HeapBytes + v.Records.IndexBytes + v.Records.OtherBytes),
			Note: fmt.Sprintf("%s in the table, %s in its index, %s besides", page.Bytes(v.Records.HeapBytes), page.Bytes(v.Records.IndexBytes), page.Bytes(v.Records.OtherBytes))},
		named("Dead rows", figure(v.Records.DeadRows, page.Count)),
		named("Purge lag", figure(v.Purge.Lag, page.Age)),
		{Name: "Last analyzed", Value: page.Time(v.Records.AnalyzedAt)},
		{Name: "Last vacuumed", Value: page.Time(v.Records.VacuumedAt)},
	}
}

func purgedOf(s *stats.Sweep, now time.Time) purged {
	p := purged{Name: s.Table, State: "no sweep has finished yet"}
	if !s.LastFinishedAt.IsZero() {
		p.State = fmt.Sprintf("finished %s ago, and deleted %s", page.Age(now.Sub(s.LastFinishedAt)), page.Count(s.LastDeleted))
	}
	switch {
	case s.Active() && s.TotalPages > 0:
		p.State += fmt.Sprintf("; one is under way, %d %%", min(100, 100*s.Pages/s.TotalPages))
	case s.InProgress && s.TotalPages > 0 && !s.Active():
		p.State += "; one was left, and no process continues it"
		p.Mood = "warn"
	}
	if s.WaitingFor != "" {
		p.State += "; waits for: " + page.Safe(string(s.WaitingFor))
		p.Mood = "warn"
	}
	return p
}

// figure formats a figure, with a note on its quality.
func figure[T any](f stats.Figure[T], say func(T) string) fact {
	switch f.Quality {
	case stats.Exact:
		return fact{Value: say(f.Value)}
	case stats.Estimate:
		return fact{Value: "about " + say(f.Value), Note: f.Note}
	}
	return fact{Value: "unknown", Note: f.Note}
}

// atLeast formats a count that ends at stats.MaxCount.
func atLeast(n int64) string {
	if n >= stats.MaxCount {
		return page.Count(n) + " or more"
	}
	return page.Count(n)
}

func moodIf(so bool, mood string) string {
	if so {
		return mood
	}
	return ""
}
