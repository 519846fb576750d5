package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/goal"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

// What the page that is read first has of a run.

// AtADistance compares first runs and replays where the network counts.
func (v view) AtADistance() string {
	return v.compare((*result.Cell).P50s, []column{
		{"one insert", first(result.Insert, result.RTT, 1)}, {"realistic", first(result.Realistic, result.RTT, 1)}, {"replay", replay(result.RTT, 1)},
	})
}

// Loopback is the throughput of first runs where no network hides the work.
func (v view) Loopback() string {
	cell := v.Cell(first(result.Insert, result.Loopback, 8))
	if cell == nil {
		return "an unknown part"
	}
	return showSpread(measure.Of(cell.Throughputs(contestant.NameIdem, cell.Unit)))
}

// Crowd is how often duplicates that come at once are executed, and how late calls beside them are.
func (v view) Crowd() string {
	var rows [][]string
	for _, p := range v.Profiles {
		if p.Error != "" {
			continue
		}
		bystanders := "-"
		for _, s := range v.Storms {
			if s.Name == p.Name && s.Error == "" {
				bystanders = fmt.Sprintf("%.1f", s.StormP99/s.CalmP99)
			}
		}
		d := p.Duplicates
		rows = append(rows, []string{p.Name, fmt.Sprintf("%d of %d", d.Executed, d.Races), fmt.Sprint(d.Refused), bystanders})
	}
	return table([]string{"", "executed", "refused", "bystanders' p99"}, rows)
}

// Apart is what an operation costs apart from time, in short.
func (v view) Apart() string {
	var rows [][]string
	for _, p := range v.Profiles {
		if p.Error == "" {
			rows = append(rows, []string{p.Name, trips(p.Trips.Insert), replayed(p, trips(p.Trips.Replay)), result.Grouped(p.WAL.First), stored(p)})
		}
	}
	return table([]string{"", "round trips", "of a replay", "WAL bytes", "stored bytes"}, rows)
}

// Score counts the verdicts.
func (v view) Score() string {
	count := map[goal.Verdict]int{}
	for _, j := range goal.Judge(v.Results) {
		count[j.Verdict]++
	}
	score := fmt.Sprintf("Of the goals that were set before they were measured %d are met, %d missed, and %d undecided: their spread crosses the bound.",
		count[goal.Met], count[goal.Missed], count[goal.Undecided])
	if absent := count[goal.Absent]; absent > 0 {
		score += fmt.Sprintf(" %d are newer than this run, or could not be measured here.", absent)
	}
	return score
}

// Missed are the goals that were.
func (v view) Missed() string {
	judged := slices.DeleteFunc(goal.Judge(v.Results), func(j goal.Judgement) bool { return j.Verdict != goal.Missed })
	if len(judged) == 0 {
		return "none.\n"
	}
	var text strings.Builder
	for _, j := range judged {
		fmt.Fprintf(&text, "- %s (%s): %s\n", j.Goal.Rule, j.Where, j.Measured)
	}
	return text.String()
}
