package command

import (
	"strconv"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
)

// table prints the timeline: recorded steps, calls in progress, and signals.
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
	// Recorded steps come first. A call in progress may have no row yet, and gets one from the
	// operation. Signals have no sequence number and follow at the end.
	recorded := map[int]bool{}
	for _, s := range t.steps {
		recorded[s.Seq] = true
		outcome := s.Outcome
		name := s.Name
		if s.Kind == string(db.UndoStep) {
			name = record.UndoName(name)
		}
		switch {
		case s.Kind == string(db.EndStep):
			name, outcome = "", "undo decided"
		case s.Outcome == string(db.StepFailed):
			outcome = p.Red(outcome)
		case s.Outcome == string(db.StepBegun) && o.State == record.Parked:
			outcome = p.Red(outcome)
		case s.Outcome == string(db.StepBegun):
			outcome = p.Yellow("in progress")
		case s.Outcome == string(db.StepWaiting) && s.DueAt != nil:
			outcome = p.Yellow(outcome) + ", due " + relative(*s.DueAt, o.Now)
		}
		row(s.Seq, s.RecordedAt, s.Kind, name, outcome, s.Value)
	}
	for _, d := range t.doubts() {
		if recorded[d.Seq] {
			continue
		}
		outcome := p.Yellow("in progress")
		if o.State == record.Parked {
			outcome = p.Red("begun")
		}
		name := d.Name
		if d.IsUndo() {
			name = record.UndoName(name)
		}
		row(d.Seq, o.Since, d.Kind, name, outcome, record.Value{})
	}
	for _, s := range t.sent {
		outcome := "received"
		if !s.Taken {
			outcome = p.Yellow("not received yet")
		}
		row(0, s.SentAt, "signal", s.Name, outcome, s.Value)
	}
	if len(rows) == 0 {
		p.Printf("no step is recorded\n")
		return
	}
	p.Table([]page.Column{{Name: "#", Right: true}, {Name: "RECORDED"}, {Name: "AFTER", Right: true}, {Name: "KIND"}, {Name: "STEP"}, {Name: "OUTCOME"}, {Name: "VALUE"}}, rows)
}
