package report

import (
	"fmt"
	"io"
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
)

// Silence is the longest time without a fault of a schedule.
type Silence struct {
	Longest, AtMost time.Duration
	Of              []fault.Name
}

// AddSilences adds the longest time without a fault of each schedule, from the start of the leg
// until the end of the injection. If that is longer than the schedule allows, the leg fails: it was
// not tested.
func (l *Leg) AddSilences(schedules []fault.Schedule, until time.Duration) {
	for _, s := range schedules {
		silence := Silence{Longest: s.Longest(l.Faults, l.Start, until), AtMost: s.AtMost, Of: s.Kinds}
		l.Silences = append(l.Silences, silence)
		if silence.Longest > silence.AtMost {
			l.Failures = append(l.Failures, fmt.Sprintf("for %v there was none of the faults %v, %v is the most that there may be",
				silence.Longest.Round(time.Second), silence.Of, silence.AtMost))
		}
	}
}

func printSilences(w io.Writer, silences []Silence) {
	for _, s := range silences {
		of := "a fault"
		if len(silences) > 1 {
			of = fmt.Sprintf("a fault among %d kinds", len(s.Of))
		}
		if len(s.Of) == 1 {
			of = string(s.Of[0])
		}
		fmt.Fprintf(w, "  longest time without %s: %v, of at most %v\n", of, s.Longest.Round(time.Millisecond), s.AtMost)
	}
}
