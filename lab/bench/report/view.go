package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/goal"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

// view is what the document's template asks for.
type view struct{ *result.Results }

func (v view) Date() string { return v.Taken.Format("2 January 2006, 15:04 UTC") }

// Goals is the table of goals.
func (v view) Goals() string {
	var rows [][]string
	for _, j := range goal.Judge(v.Results) {
		verdict := string(j.Verdict)
		if j.Verdict == goal.Missed {
			verdict = "**" + verdict + "**"
		}
		rows = append(rows, []string{j.Goal.Rule, j.Where, j.Measured, verdict})
	}
	return texts([]string{"goal", "where", "measured", "verdict"}, rows)
}

// Contestants is the table of guarantees.
func (v view) Contestants() string {
	var rows [][]string
	for _, c := range contestant.All() {
		g := c.Guarantees
		rows = append(rows, []string{c.Name, g.Atomic, g.Free, g.Replays, g.Checks, fmt.Sprint(c.Durable)})
	}
	return texts([]string{"contestant", "record and effect atomic", "key free at once after a crash", "replays the response", "refuses another payload", "waits for the disk, at least"}, rows)
}

// Latency compares first runs by their median latency.
func (v view) Latency() string {
	return v.compare((*result.Cell).P50s, []column{
		{"one insert, loopback", first(result.Insert, result.Loopback, 1)}, {"one insert, 1 ms RTT", first(result.Insert, result.RTT, 1)}, {"one insert, flush +1 ms", first(result.Insert, result.Flush, 1)},
		{"realistic, loopback", first(result.Realistic, result.Loopback, 1)}, {"realistic, 1 ms RTT", first(result.Realistic, result.RTT, 1)}, {"realistic, flush +1 ms", first(result.Realistic, result.Flush, 1)},
	})
}

// Throughput compares first runs by their throughput.
func (v view) Throughput() string {
	return v.compare((*result.Cell).Throughputs, []column{
		{"one insert, 8 clients", first(result.Insert, result.Loopback, 8)}, {"realistic, 8 clients", first(result.Realistic, result.Loopback, 8)}, {"realistic, 32 clients", first(result.Realistic, result.Loopback, 32)},
		{"realistic, 8 clients, 1 ms RTT", first(result.Realistic, result.RTT, 8)}, {"one insert, 8 clients, flush +1 ms", first(result.Insert, result.Flush, 8)},
		{"realistic, 8 clients, flush +1 ms", first(result.Realistic, result.Flush, 8)},
	})
}

// Replays compares replays with a SELECT.
func (v view) Replays() string {
	return v.compare((*result.Cell).P50s, []column{
		{"loopback, 1 client", replay(result.Loopback, 1)}, {"loopback, 8 clients", replay(result.Loopback, 8)}, {"1 ms RTT, 1 client", replay(result.RTT, 1)},
	})
}

// Duplicates compares work in which some calls repeat others.
func (v view) Duplicates() string {
	return v.compare((*result.Cell).Throughputs, []column{
		{"1 % duplicates", mixed(0.01)}, {"50 % duplicates", mixed(0.5)},
	})
}

// Sizes compares responses of several sizes.
func (v view) Sizes() string {
	return v.compare((*result.Cell).P50s, []column{
		{"first run, 200 B", first(result.Insert, result.Loopback, 1)}, {"first run, 16 KiB", sized(result.First, 16<<10)}, {"first run, 1 MiB", sized(result.First, 1<<20)},
		{"replay, 200 B", replay(result.Loopback, 1)}, {"replay, 16 KiB", sized(result.Replay, 16<<10)}, {"replay, 1 MiB", sized(result.Replay, 1<<20)},
	})
}

// Postgres18 compares first runs and replays on another version of the server.
func (v view) Postgres18() string {
	return v.compare((*result.Cell).P50s, []column{
		{"one insert, 1 client", first(result.Insert, result.Newest, 1)}, {"realistic, 8 clients", first(result.Realistic, result.Newest, 8)}, {"replay, 1 client", replay(result.Newest, 1)},
	})
}

// compare is a table with a contestant in each row, and its ratios to the unit of each column's cell.
func (v view) compare(ratios func(*result.Cell, string, string) []float64, columns []column) string {
	columns = slices.DeleteFunc(columns, func(c column) bool { return v.Cell(c.point) == nil })
	header := []string{""}
	for _, c := range columns {
		header = append(header, c.heading)
	}
	var rows [][]string
	for _, c := range append([]contestant.Contestant{contestant.Lookup()}, everybody()...) {
		row, any := []string{c.Name}, false
		for _, column := range columns {
			cell := v.Cell(column.point)
			found := ratios(cell, c.Name, cell.Unit)
			any = any || len(found) > 0
			row = append(row, showSpread(measure.Of(found)))
		}
		if any {
			rows = append(rows, row)
		}
	}
	return table(header, rows)
}

// everybody are the contestants, those that are in some cells alone behind the others.
func everybody() []contestant.Contestant {
	return slices.Concat(contestant.All(), contestant.Hinted(), contestant.DatabaseSQL(), []contestant.Contestant{contestant.BareWrites()})
}

// Costs is the table of what an operation costs apart from time.
func (v view) Costs() string {
	header := []string{"", "round trips: one insert", "realistic", "replay", "WAL bytes: first run", "replay", "allocations: first run", "replay",
		"allocated bytes: first run", "replay", "stored bytes per record"}
	var rows [][]string
	for _, p := range v.Profiles {
		if p.Error != "" {
			continue
		}
		rows = append(rows, []string{p.Name, trips(p.Trips.Insert), trips(p.Trips.Realistic), replayed(p, trips(p.Trips.Replay)), result.Grouped(p.WAL.First),
			replayed(p, result.Grouped(p.WAL.Replay)), result.Grouped(p.Allocs.First), replayed(p, result.Grouped(p.Allocs.Replay)), result.Grouped(p.AllocBytes.First),
			replayed(p, result.Grouped(p.AllocBytes.Replay)), stored(p)})
	}
	return table(header, rows)
}

func trips(n float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0") }

// replayed is a figure of a replay, if the contestant has such a thing.
func replayed(p result.Profile, figure string) string {
	if p.Trips.Replay == 0 {
		return "-"
	}
	return figure
}

func stored(p result.Profile) string {
	if p.Storage == 0 {
		return "-"
	}
	return result.Grouped(p.Storage)
}

// Crowds is the table of what happens when calls with one key come together.
func (v view) Crowds() string {
	var rows [][]string
	for _, p := range v.Profiles {
		if p.Error == "" {
			d := p.Duplicates
			rows = append(rows, []string{p.Name, fmt.Sprintf("%d of %d", d.Executed, d.Races), fmt.Sprint(d.Refused), fmt.Sprint(p.Held.Running), fmt.Sprint(p.Held.Waiting)})
		}
	}
	return table([]string{"", "executions of so many requests", "calls refused", "connections held by the first run", "by 20 duplicates that wait"}, rows)
}

// HotKey is the table of storms.
func (v view) HotKey() string {
	var rows [][]string
	for _, s := range v.Storms {
		if s.Error != "" {
			rows = append(rows, []string{s.Name, "failed: " + s.Error, "", "", "", ""})
			continue
		}
		windows := measure.Of(measure.Ratios(s.Stormy, s.Calm))
		rows = append(rows, []string{s.Name, result.Grouped(s.CalmP99), result.Grouped(s.StormP99), fmt.Sprintf("%.2f", s.StormP99/s.CalmP99),
			fmt.Sprintf("%.2f to %.2f", windows.Min, windows.Max), result.Grouped(s.Settled), fmt.Sprint(s.Refused / max(s.Storms, 1))})
	}
	return table([]string{"", "bystanders' p99 without, µs", "with, µs", "ratio", "of single windows", "last answer after, ms", "refused, of 1,000"}, rows)
}

// Growth is the table of table sizes.
func (v view) Growth() string {
	var rows [][]string
	for _, point := range result.GrowthPoints() {
		cell := v.Cell(point)
		if cell == nil {
			continue
		}
		for _, e := range cell.Entries {
			rows = append(rows, []string{point.Spell(), e.Name, micros(e.P50), micros(e.P99), showSpread(measure.Of(cell.P50s(e.Name, cell.Unit)))})
		}
	}
	return table([]string{"", "in the table", "p50, µs", "p99, µs", "p50 as a multiple of the first row's"}, rows)
}

// Details are the tables of all cells.
func (v view) Details() string {
	var text strings.Builder
	for _, cell := range v.Cells {
		s := cell.Setting
		fmt.Fprintf(&text, "`%s`: %s, %s, response of %s B; round trip %s, flush %s, PostgreSQL %s\n\n", cell.Name, spellBusiness(s.Business),
			result.Clients(s.Clients), result.Grouped(float64(s.Response)), s.RTT, flush(s.Fsync), v.version(s.Server))
		text.WriteString(v.detail(&cell) + "\n")
	}
	return text.String()
}

func flush(setting string) string {
	if setting == result.Undisturbed {
		return setting
	}
	return "+" + setting
}

func (v view) detail(cell *result.Cell) string {
	var rows [][]string
	for _, e := range cell.Entries {
		if failed := e.Error + e.Unverified; failed != "" {
			rows = append(rows, []string{e.Name, "failed: " + failed, "", "", "", "", "", "", ""})
			continue
		}
		rows = append(rows, []string{e.Name, fmt.Sprint(e.Ops), micros(e.P50), micros(e.P99), result.Grouped(measure.Of(e.PerSecond()).Median),
			showSpread(measure.Of(cell.P50s(e.Name, cell.Unit))), showSpread(measure.Of(cell.Throughputs(e.Name, cell.Unit))),
			fmt.Sprintf("%d of %d", e.Executed, e.Requests), fmt.Sprint(e.Refused)})
	}
	return table([]string{"", "calls", "p50, µs", "p99, µs", "calls/s", "p50 as a multiple", "throughput as a multiple", "effects of so many requests", "refused"}, rows)
}

func (v view) version(server string) string {
	for _, s := range v.Servers {
		if s.Name == server {
			return s.Version
		}
	}
	return "?"
}

// ServerTable tells what the servers were.
func (v view) ServerTable() string {
	var rows [][]string
	for _, s := range v.Servers {
		rows = append(rows, []string{s.Name, s.Version, s.From, result.Grouped(s.FlushUS), "`" + strings.Join(s.Settings, "` `") + "`"})
	}
	return texts([]string{"server", "PostgreSQL", "from", "a COMMIT waits for the disk, µs", "settings that differ from the defaults"}, rows)
}

// VersionList names what took part.
func (v view) VersionList() string {
	var all []string
	for _, module := range slices.Sorted(maps.Keys(v.Versions)) {
		all = append(all, module+" "+v.Versions[module])
	}
	return strings.Join(all, ", ")
}

// Doubled is how often the contestant that looks first and inserts then was wrong.
func (v view) Doubled() string {
	p := v.Profile(contestant.NameSelectInsert)
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%q executed %d requests, each sent by 32 callers at once, %d times. ", p.Name, p.Duplicates.Races, p.Duplicates.Executed)
}
