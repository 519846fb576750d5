package command

import (
	"strconv"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/store"
)

// table is the timeline: what is on record, what was sent, and what is under way.
func (t *timeline) table(p *page.Page, reveal bool) {
	o := t.operation
	var rows [][]string
	row := func(seq int, at time.Time, kind, name, outcome string, v record.Value) {
		number, size := "", ""
		if seq > 0 {
			number = strconv.Itoa(seq)
		}
		if v.Bytes > 0 {
			size = page.Bytes(v.Bytes)
		}
		cells := []string{number, page.Time(at), page.Age(at.Sub(o.CreatedAt)), kind, page.Safe(name), outcome, size}
		if reveal {
			cells[6] = ""
			if v.Stored != nil {
				cells[6] = shownText(v)
			}
		}
		rows = append(rows, cells)
	}
	recorded := map[int]bool{}
	for _, s := range t.steps {
		recorded[s.Seq] = true
		outcome := s.Outcome
		switch {
		case s.Outcome == string(store.StepFailed):
			outcome = p.Red(outcome)
		case s.Outcome == string(store.StepRegistered) && o.State == "completed":
			outcome = "not needed"
		case s.Outcome == string(store.StepBegun) && o.State == record.Parked:
			outcome = p.Red(outcome)
		case s.Outcome == string(store.StepBegun):
			outcome = p.Yellow("under way")
		case s.Seq == o.Seq && s.Outcome == string(store.StepRegistered) && o.EndedAt == nil:
			outcome = p.Yellow("under way")
		case s.Outcome == string(store.StepWaiting) && s.DueAt != nil:
			outcome = p.Yellow(outcome) + ", due " + relative(*s.DueAt, o.Now)
		}
		row(s.Seq, s.RecordedAt, s.Kind, s.Name, outcome, s.Value)
	}
	if o.EndedAt == nil && o.Seq > 0 && !recorded[o.Seq] {
		outcome := p.Yellow("under way")
		if o.State == record.Parked {
			outcome = p.Red("begun")
		}
		row(o.Seq, o.Since, "call", o.Step, outcome, record.Value{})
	}
	for _, s := range t.sent {
		outcome := "taken"
		if !s.Taken {
			outcome = p.Yellow("not taken yet")
		}
		row(0, s.SentAt, "signal", s.Name, outcome, s.Value)
	}
	if len(rows) == 0 {
		p.Printf("no step is on record\n")
		return
	}
	p.Table([]page.Column{{Name: "#", Right: true}, {Name: "ON RECORD"}, {Name: "AFTER", Right: true}, {Name: "KIND"}, {Name: "STEP"}, {Name: "OUTCOME"}, {Name: "VALUE"}}, rows)
}
