package report

import (
	"fmt"
	"slices"

	"github.com/idem-go/idem/bench/contestant"
	"github.com/idem-go/idem/bench/measure"
	"github.com/idem-go/idem/bench/result"
)

// judgement is what became of a goal at one place.
type judgement struct {
	Goal, Where, Measured, Verdict string
}

const (
	met    = "met"
	missed = "missed"
	absent = "not measured"
)

// bound is a goal for a ratio: at most or at least a limit.
type bound struct {
	goal    string
	limit   float64
	atLeast bool
}

func (b bound) judge(where string, ratios []float64) judgement {
	if len(ratios) == 0 {
		return judgement{b.goal, where, "-", absent}
	}
	spread := measure.Of(ratios)
	measured := fmt.Sprintf("%.3f (%.3f to %.3f)", spread.Median, spread.Min, spread.Max)
	return judgement{b.goal, where, measured, verdict(b.atLeast && spread.Median >= b.limit || !b.atLeast && spread.Median <= b.limit)}
}

func verdict(ok bool) string {
	if ok {
		return met
	}
	return missed
}

var (
	latencyGoal    = bound{goal: "first run at 1 ms of round-trip time: p50 at most 1.05 of the plain transaction", limit: 1.05}
	throughputGoal = bound{goal: "realistic write on loopback: at least 0.75 of the plain transaction's throughput", limit: 0.75, atLeast: true}
	commitGoal     = bound{goal: "flush 1 ms slower: at least 1.8 times the throughput of the best that commits twice", limit: 1.8, atLeast: true}
	replayGoal     = bound{goal: "replay: p50 at most 1.15 of a SELECT by primary key", limit: 1.15}
	stormGoal      = bound{goal: "hot key with 1,000 duplicates: bystanders' p99 at most 1.5 of what it is without them", limit: 1.5}
	growthGoal     = bound{goal: "flat: p50 at most 1.10 of what it is at 10,000 records", limit: 1.10}
)

const (
	replayWALGoal = "replay: 0 bytes of write-ahead log"
	firstWALGoal  = "first run: at most 560 bytes of write-ahead log more than the plain transaction"
	maxFirstWAL   = 560
)

// judge evaluates the goals, place by place.
func judge(r *result.Results) []judgement {
	idem, plain := contestant.Idem().Name, contestant.Plain().Name
	var all []judgement
	for _, business := range []string{"insert", "realistic"} {
		name := "first/" + business + "/rtt/1"
		all = append(all, latencyGoal.judge(spellBusiness(business)+", 1 client", p50s(r.Cell(name), idem, plain)))
	}
	for _, clients := range []int{1, 8, 32} {
		name := fmt.Sprintf("first/realistic/loopback/%d", clients)
		all = append(all, throughputGoal.judge(count(clients, "client"), throughputs(r.Cell(name), idem, plain)))
	}
	for _, business := range []string{"insert", "realistic"} {
		for _, clients := range []int{1, 8} {
			cell := r.Cell(fmt.Sprintf("first/%s/flush/%d", business, clients))
			best := bestTwice(cell)
			where := fmt.Sprintf("%s, %s", spellBusiness(business), count(clients, "client"))
			if best != "" {
				where += ", against " + best
			}
			all = append(all, commitGoal.judge(where, throughputs(cell, idem, best)))
		}
	}
	for _, leg := range []struct{ name, where string }{{"loopback", "loopback, 1 client"}, {"rtt", "1 ms of round-trip time, 1 client"}} {
		all = append(all, replayGoal.judge(leg.where, p50s(r.Cell("replay/insert/"+leg.name+"/1"), idem, contestant.Lookup().Name)))
	}
	all = append(all, judgeWAL(r)...)
	all = append(all, judgeStorm(r))
	return append(all, judgeGrowth(r)...)
}

func judgeWAL(r *result.Results) []judgement {
	idem, plain := profile(r, contestant.Idem().Name), profile(r, contestant.Plain().Name)
	if idem == nil || plain == nil {
		return []judgement{{replayWALGoal, "one insert", "-", absent}, {firstWALGoal, "one insert", "-", absent}}
	}
	more := idem.WAL.First - plain.WAL.First
	return []judgement{
		{replayWALGoal, "one insert", fmt.Sprintf("%.0f B", idem.WAL.Replay), verdict(idem.WAL.Replay == 0)},
		{firstWALGoal, "one insert, response of 200 B", fmt.Sprintf("%.0f B", more), verdict(more <= maxFirstWAL)},
	}
}

func judgeStorm(r *result.Results) judgement {
	for _, s := range r.Storms {
		if s.Name == contestant.Idem().Name && s.Error == "" && s.CalmP99 > 0 {
			j := stormGoal.judge("one insert, 8 bystanders", []float64{s.StormP99 / s.CalmP99})
			windows := measure.Of(measure.Ratios(s.Stormy, s.Calm))
			j.Measured = fmt.Sprintf("%.3f (windows: %.3f to %.3f)", s.StormP99/s.CalmP99, windows.Min, windows.Max)
			return j
		}
	}
	return stormGoal.judge("one insert, 8 bystanders", nil)
}

func judgeGrowth(r *result.Results) []judgement {
	var all []judgement
	for _, point := range []struct{ cell, where string }{
		{"first/insert/grown/1", "first run, 1 client"}, {"first/insert/grown/8", "first run, 8 clients"}, {"replay/insert/grown/1", "replay, 1 client"},
	} {
		cell := r.Cell(point.cell)
		if cell == nil || len(cell.Entries) < 2 {
			all = append(all, growthGoal.judge(point.where, nil))
			continue
		}
		for _, e := range cell.Entries[1:] {
			all = append(all, growthGoal.judge(e.Name+", "+point.where, p50s(cell, e.Name, cell.Unit)))
		}
	}
	return all
}

// bestTwice is the contestant with the highest throughput of those that wait for a disk more than once.
func bestTwice(cell *result.Cell) string {
	best, most := "", 0.0
	for _, c := range contestant.All() {
		e := cell.Entry(c.Name)
		if c.Durable < 2 || e == nil {
			continue
		}
		if median := measure.Of(perSecond(e)).Median; median > most {
			best, most = c.Name, median
		}
	}
	return best
}

// p50s are the ratios of the median latencies of two entries, round by round; none if one of them is not there.
func p50s(cell *result.Cell, of, to string) []float64 {
	return ratios(cell, of, to, func(r result.Round) float64 { return r.P50 })
}

func throughputs(cell *result.Cell, of, to string) []float64 {
	return ratios(cell, of, to, func(r result.Round) float64 { return r.PerSecond })
}

func ratios(cell *result.Cell, of, to string, figure func(result.Round) float64) []float64 {
	a, b := cell.Entry(of), cell.Entry(to)
	if a == nil || b == nil {
		return nil
	}
	return measure.Ratios(figuresOf(a, figure), figuresOf(b, figure))
}

func perSecond(e *result.Entry) []float64 {
	return figuresOf(e, func(r result.Round) float64 { return r.PerSecond })
}

func figuresOf(e *result.Entry, figure func(result.Round) float64) []float64 {
	var all []float64
	for _, r := range e.Rounds {
		all = append(all, figure(r))
	}
	return all
}

func profile(r *result.Results, name string) *result.Profile {
	at := slices.IndexFunc(r.Profiles, func(p result.Profile) bool { return p.Name == name && p.Error == "" })
	if at < 0 {
		return nil
	}
	return &r.Profiles[at]
}
