package record

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/stats"
)

// Fact is a figure for display. Command and web page show the same facts, so that two people who
// talk about a problem see the same words.
type Fact struct {
	Name, Value, Note string
	Mood              string // how serious the figure is: bad, warn or empty
	Link              string // the page of package ui with details
}

// FactsOfPeople returns the figures about operations, keys and messages, which may need a person.
func FactsOfPeople(v *stats.Stats) []Fact {
	return append(append(operationFacts(v.Operations), flightFact(v.InFlight)), messageFacts(v.Messages)...)
}

// operationFacts returns the numbers of parked and running operations. An overdue running operation
// is a warning, because no process executes it.
func operationFacts(f stats.Figure[stats.Operations]) []Fact {
	if !f.Known() {
		return []Fact{{Name: "operations", Value: "unknown", Note: f.Note}}
	}
	parked := Fact{Name: "parked operations", Value: page.Count(f.Value.Parked), Link: "operations", Note: "no operation is parked"}
	if f.Value.Parked > 0 {
		parked.Mood, parked.Note = "bad", "the first for "+page.Age(f.Value.ParkedFor)
	}
	running := Fact{Name: "running operations", Value: page.Count(f.Value.Running), Link: "operations?state=running"}
	if f.Value.OverdueFor > 0 {
		running.Mood, running.Note = "warn", "one has been due for "+page.Age(f.Value.OverdueFor)+", and no process executes it"
	}
	return []Fact{parked, running}
}

// messageFacts returns the backlog of outbox and inbox. Held and failing messages may recover by
// themselves, so their mood is "warn". Dead letters wait for a person, so their mood is "bad".
func messageFacts(f stats.Figure[stats.Messages]) []Fact {
	if !f.Known() {
		return []Fact{{Name: "messages", Value: "unknown", Note: f.Note}}
	}
	m := f.Value
	count := func(n int64) string { return page.AtLeast(n, stats.MaxCount) }
	waiting := Fact{Name: "messages to publish", Value: count(m.Waiting), Link: "messages", Note: "no message waits"}
	if m.Oldest > 0 {
		waiting.Note = "the oldest for " + page.Age(m.Oldest)
	}
	failing := Fact{Name: "failing at a consumer", Value: "none", Link: "messages"}
	if m.FailingFor > 0 {
		failing.Value, failing.Mood = "for "+page.Age(m.FailingFor), "warn"
	}
	return []Fact{
		waiting,
		{Name: "held messages", Value: count(m.Held), Link: "messages", Mood: MoodIf(m.Held > 0, "warn")},
		{Name: "messages not due yet", Value: count(m.Delayed), Link: "messages?state=delayed"},
		{Name: "dead letters", Value: fmt.Sprintf("%s + %s", count(m.OutboxDead), count(m.InboxDead)),
			Note: "of the outbox, and of consumers", Link: "dead", Mood: MoodIf(m.OutboxDead+m.InboxDead > 0, "bad")},
		failing,
	}
}

// flightFact returns the number of keys that open transactions hold.
func flightFact(f stats.InFlight) Fact {
	one := Fact{Name: "keys in flight", Value: page.Count(f.Keys), Link: "flight", Note: "no transaction holds a key"}
	if f.Transactions > 0 {
		transactions := "1 transaction"
		if f.Transactions > 1 {
			transactions = page.Count(f.Transactions) + " transactions"
		}
		one.Note = fmt.Sprintf("in %s, the oldest for %s", transactions, figure("", f.Oldest, page.Age).Value)
		one.Mood = MoodIf(f.Oldest.Value >= LongHeld, "warn")
	}
	return one
}

// FactsOfRecords returns the figures of the table of records.
func FactsOfRecords(v *stats.Stats) []Fact {
	r := &v.Records
	return []Fact{
		figure("records", r.Count, page.Count),
		figure("expired", r.Expired, page.Count),
		figure("oldest expired", r.OldestExpired, page.Age),
		{Name: "size", Value: page.Bytes(r.HeapBytes + r.IndexBytes + r.OtherBytes),
			Note: fmt.Sprintf("%s in the table, %s in its index, %s elsewhere", page.Bytes(r.HeapBytes), page.Bytes(r.IndexBytes), page.Bytes(r.OtherBytes))},
		figure("dead rows", r.DeadRows, page.Count),
		figure("purge lag", v.Purge.Lag, page.Age),
		{Name: "last analyzed", Value: page.Time(r.AnalyzedAt)},
		{Name: "last vacuumed", Value: page.Time(r.VacuumedAt)},
	}
}

// FactOfSweep describes the last sweep of a table, and the one in progress. A sweep is in progress
// but not active if its process ended before the end of the table. The next purge resumes it.
func FactOfSweep(s *stats.Sweep, now time.Time) Fact {
	f := Fact{Name: s.Table, Value: "no sweep has finished yet"}
	if !s.LastFinishedAt.IsZero() {
		f.Value = fmt.Sprintf("finished %s, and deleted %s", page.Relative(s.LastFinishedAt, now), page.Count(s.LastDeleted))
	}
	if s.InProgress && s.TotalPages > 0 {
		share := fmt.Sprintf("%d %%", min(100, 100*s.Pages/s.TotalPages))
		if s.Active() {
			f.Value += "; a sweep is in progress, " + share
		} else {
			f.Value += "; a sweep stopped at " + share + ", and no process continues it"
			f.Mood = "warn"
		}
	}
	if s.WaitingFor != "" {
		f.Value += "; waits for: " + page.Safe(string(s.WaitingFor))
		f.Mood = "warn"
	}
	return f
}

// figure formats a figure, with a note on its quality. Most figures are estimates from statistics
// of the server, and a person must not take them for exact.
func figure[T any](name string, f stats.Figure[T], format func(T) string) Fact {
	switch f.Quality {
	case stats.Exact:
		return Fact{Name: name, Value: format(f.Value)}
	case stats.Estimate:
		return Fact{Name: name, Value: "about " + format(f.Value), Note: f.Note}
	}
	return Fact{Name: name, Value: "unknown", Note: f.Note}
}

// MoodIf returns mood if the condition so is true, and "" otherwise.
func MoodIf(so bool, mood string) string {
	if so {
		return mood
	}
	return ""
}
