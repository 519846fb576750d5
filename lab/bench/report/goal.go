package report

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/idem-go/idem/lab/bench/calls/contestant"
	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/messages/out"
	operations "github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/bench/result"
)

// goal is a bound on a figure. It is met if the median of the figure is within the bound in every
// scenario and for every contestant that the goal names.
type goal struct {
	rule        string
	scenario    string // regular expression that selects scenarios
	contestants []string
	figure      string
	atLeast     bool
	limit       float64
	// If of is not empty, the bound is limit plus times the figure of the contestant of.
	times float64
	of    string
}

// finding is the outcome of a goal: the worst figure and its scenario.
type finding struct {
	goal
	measured, where string // empty if not measured
	met             bool
	near            bool // some rounds meet the bound and some miss it
}

// bareWAL is how many bytes of WAL two bare writes of a record add to the plain transaction, as
// measured on 22 November 2026.
const bareWAL = 714

// goals returns the goals. They were set before the measurements.
func goals() []goal {
	idem, textbook := []string{contestant.NameIdem}, []string{contestant.NameTextbook}
	twice := []string{contestant.NamePhases, contestant.NameDBOS, contestant.NameFiber, contestant.NameRedisAlways}
	large := []string{"1,000,000 records", "10,000,000 records"}
	operation, plain := []string{operations.Idem().Name}, operations.Plain().Name
	var others []string
	for _, c := range operations.All() {
		if c.Name != operation[0] && c.Name != plain {
			others = append(others, c.Name)
		}
	}
	inboxes := []string{in.Handle().Name, in.Batch().Name, in.Bulk().Name}
	both := []string{operation[0], operations.IdemOnce().Name}
	return []goal{
		{rule: "first run, 1 ms RTT: p50 over the plain transaction's", scenario: "^first/.*/rtt/1$", contestants: idem, figure: "p50_us/base", limit: 1.03},
		{rule: "first run: processor time over two bare writes'", scenario: "^first/.*/loopback/[18]$", contestants: []string{contestant.NameBareWrites}, figure: "own/cpu_us", limit: 1.10},
		{rule: "idem.Do's throughput over idemsql.Do's", scenario: "^first/.*/loopback/[18]$", contestants: []string{contestant.NameIdemSQL}, figure: "own/per_s", limit: 1.05},
		{rule: "flush +1 ms: throughput over any that commits twice", scenario: "^first/.*/flush/", contestants: twice, figure: "own/per_s", atLeast: true, limit: 1.80},
		{rule: "replay, loopback: p50 over a SELECT's", scenario: "^replay/insert/loopback/1$", contestants: idem, figure: "p50_us/base", limit: 1.60},
		{rule: "replay, 1 ms RTT: p50 over a SELECT's", scenario: "^replay/insert/rtt/1$", contestants: idem, figure: "p50_us/base", limit: 1.15},
		{rule: "likely replay, loopback: p50 over a SELECT's", scenario: "^replay/insert/loopback/1$", contestants: []string{contestant.NameIdemHinted}, figure: "p50_us/base", limit: 1.15},
		{rule: "50 % duplicates: throughput over the textbook's", scenario: "^mixed-50", contestants: textbook, figure: "own/per_s", atLeast: true, limit: 1},
		{rule: "WAL of a first run, beyond the plain transaction's", scenario: "^costs$", contestants: idem, figure: "wal_first", limit: bareWAL + 50, times: 1, of: contestant.NamePlain},
		{rule: "WAL of a replay", scenario: "^costs$", contestants: idem, figure: "wal_replay"},
		{rule: "allocations of a first run", scenario: "^costs$", contestants: idem, figure: "allocs_first", limit: 71},
		{rule: "allocations of a replay", scenario: "^costs$", contestants: idem, figure: "allocs_replay", limit: 29},
		{rule: "bystanders' p99 beside 1,000 duplicates", scenario: "^storm$", contestants: idem, figure: "slowdown", limit: 1.5},
		{rule: "large table: first run, 1 client", scenario: "^growth$", contestants: large, figure: "first1_us/base", limit: 1.10},
		{rule: "large table: first run, 8 clients", scenario: "^growth$", contestants: large, figure: "first8_us/base", limit: 1.10},
		{rule: "large table: replay, 1 client", scenario: "^growth$", contestants: large, figure: "replay1_us/base", limit: 1.10},
		{rule: "large table: replay, 8 clients", scenario: "^growth$", contestants: large, figure: "replay8_us/base", limit: 1.10},
		{rule: "p50 over the textbook's, 1 client", scenario: "/(loopback|rtt|flush)/1$", contestants: textbook, figure: "own/p50_us", limit: 1},
		{rule: "throughput over the textbook's, several clients", scenario: "^(first|replay).*/(8|32)$", contestants: textbook, figure: "own/per_s", atLeast: true, limit: 1},
		{rule: "round trips of a first run, against the textbook", scenario: "^costs$", contestants: idem, figure: "trips_first", times: 1, of: contestant.NameTextbook},
		{rule: "round trips of a replay, against the textbook", scenario: "^costs$", contestants: idem, figure: "trips_replay", times: 1, of: contestant.NameTextbook},
		{rule: "bytes stored, against the textbook", scenario: "^costs$", contestants: idem, figure: "stored", times: 1, of: contestant.NameTextbook},
		{rule: "allocations of a first run, against the textbook", scenario: "^costs$", contestants: idem, figure: "allocs_first", times: 1, of: contestant.NameTextbook},
		{rule: "allocations of a replay, against the textbook", scenario: "^costs$", contestants: idem, figure: "allocs_replay", times: 1, of: contestant.NameTextbook},

		{rule: "operation: commits", scenario: "^operations/costs$", contestants: operation, figure: "commits", limit: 2.1},
		{rule: "operation: commits of any alternative", scenario: "^operations/costs$", contestants: others, figure: "commits", atLeast: true, limit: 0.5, times: 1, of: operation[0]},
		{rule: "operation: round trips, against plain transactions", scenario: "^operations/costs$", contestants: operation, figure: "trips", limit: 4.1, times: 1, of: plain},
		{rule: "operation: p50 over DBOS Transact's", scenario: "^operations/near/1$", contestants: []string{operations.DBOS().Name}, figure: "own/p50_us", limit: 0.333},
		{rule: "operation: throughput over any alternative's", scenario: "^operations/(near|far)/[0-9]{1,2}$", contestants: others, figure: "own/per_s", atLeast: true, limit: 1},
		{rule: "50 operations on a pool of 2, bank at 300 ms, in ms", scenario: "^operations/crowd$", contestants: operation, figure: "took_ms", limit: 2000},
		{rule: "operation: p99 from kill -9 to the next call, in ms", scenario: "^operations/killed$", contestants: operation, figure: "resumed_p99_ms", limit: 1500},
		{rule: "operation: charged twice", scenario: "^operations/killed$", contestants: both, figure: "charged_twice"},

		{rule: "inbox.Batch: throughput over the INSERTs alone", scenario: "^messages/effects/1$", contestants: []string{in.PlainBatch().Name}, figure: "own/per_s", atLeast: true, limit: 0.6},
		{rule: "Relay: throughput over a loop by hand", scenario: "^messages/stock$", contestants: []string{out.ByHand().Name}, figure: "own/per_s", atLeast: true, limit: 0.5},
		{rule: "outbox.Queue: round trips, against none", scenario: "^messages/costs$", contestants: []string{out.IdemPiped().Name}, figure: "trips", times: 1, of: out.PlainPiped().Name},
		{rule: "outbox.Add: WAL, against a bare row", scenario: "^messages/costs$", contestants: []string{out.Idem().Name}, figure: "wal", times: 1.15, of: out.ByHand().Name},
		{rule: "outbox, killed: lost", scenario: "^messages/killed/out$", contestants: []string{out.Idem().Name}, figure: "lost"},
		{rule: "outbox, killed: out of order", scenario: "^messages/killed/out$", contestants: []string{out.Idem().Name}, figure: "out_of_order"},
		{rule: "inbox, killed: lost", scenario: "^messages/killed/in$", contestants: inboxes, figure: "lost"},
		{rule: "inbox, killed: doubled", scenario: "^messages/killed/in$", contestants: inboxes, figure: "doubled"},
	}
}

// judge returns the figure that is worst for the goal.
func (g goal) judge(r *result.Results) finding {
	found, name := finding{goal: g, met: true}, regexp.MustCompile(g.scenario)
	worst := 0.0
	for _, run := range r.Runs {
		for i := range run.Scenarios {
			s := &run.Scenarios[i]
			if !name.MatchString(s.Name) {
				continue
			}
			for _, who := range g.contestants {
				figure := s.Figure(who, g.figure)
				bound, known := g.bound(s)
				if figure == nil || !known {
					continue
				}
				excess := figure[0] - bound // positive: the bound is missed
				if g.atLeast {
					excess = -excess
				}
				if found.measured != "" && excess <= worst {
					continue
				}
				worst = excess
				found.measured, found.where = show(g.figure, figure), s.Name
				if len(g.contestants) > 1 {
					found.where += ", " + who
				}
				if g.of != "" {
					found.measured += " against " + number(s.Figure(g.of, g.figure)[0])
				}
				found.met = excess <= 0
				found.near = len(figure) == 3 && figure[1] <= bound && bound <= figure[2]
			}
		}
	}
	return found
}

// bound returns the bound in a scenario. known is false if the bound depends on a figure that was
// not measured.
func (g goal) bound(s *result.Scenario) (bound float64, known bool) {
	if g.of == "" {
		return g.limit, true
	}
	other := s.Figure(g.of, g.figure)
	if other == nil {
		return 0, false
	}
	return g.limit + g.times*other[0], true
}

// wanted returns the bound as text.
func (g goal) wanted() string {
	relation := "≤"
	if g.atLeast {
		relation = "≥"
	}
	switch {
	case g.of == "":
		return fmt.Sprintf("%s %s", relation, number(g.limit))
	case g.limit == 0 && g.times == 1:
		return relation + " it"
	case g.limit == 0:
		return fmt.Sprintf("%s %s of it", relation, number(g.times))
	}
	return fmt.Sprintf("%s +%s", relation, number(g.limit))
}

func (f finding) verdict() string {
	switch {
	case f.measured == "":
		return "not measured"
	case f.near && f.met:
		return "met, narrowly"
	case f.near:
		return "missed, narrowly"
	case f.met:
		return "met"
	}
	return "missed"
}

// Verdicts returns the outcome of all goals, one per line.
func Verdicts(r *result.Results) string {
	var text strings.Builder
	for _, g := range goals() {
		f := g.judge(r)
		fmt.Fprintf(&text, "%-16s %s %s: %s  %s\n", f.verdict(), f.rule, f.wanted(), f.measured, f.where)
	}
	return text.String()
}

// missed returns a list of the missed goals.
func missed(r *result.Results) string {
	var text strings.Builder
	for _, g := range goals() {
		if f := g.judge(r); f.measured != "" && !f.met {
			narrowly := ""
			if f.near {
				narrowly = ", narrowly"
			}
			fmt.Fprintf(&text, "- %s %s: %s%s\n", f.rule, f.wanted(), f.measured, narrowly)
		}
	}
	return text.String()
}

// score returns a sentence with the number of met and missed goals.
func score(r *result.Results) string {
	var met, missed, absent int
	for _, g := range goals() {
		switch f := g.judge(r); {
		case f.measured == "":
			absent++
		case f.met:
			met++
		default:
			missed++
		}
	}
	return fmt.Sprintf("%d are met, %d are missed, and %d were not measured in these runs.", met, missed, absent)
}
