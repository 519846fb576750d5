package report

import (
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/bench/contestant"
	"github.com/idem-go/idem/bench/measure"
	"github.com/idem-go/idem/bench/result"
)

// figure is a plot with one message.
type figure struct {
	name string
	draw func() ([]byte, error)
}

// figures are the plots that can be drawn of what was measured.
func figures(r *result.Results) []figure {
	var all []figure
	add := func(name string, ok bool, draw func() ([]byte, error)) {
		if ok {
			all = append(all, figure{name, draw})
		}
	}
	first := ratioSeries(r, p50s, []column{
		{"loopback", "first/insert/loopback/1"}, {"1 ms of round-trip time", "first/insert/rtt/1"}, {"flush 1 ms slower", "first/insert/flush/1"},
	})
	add("first-run", len(first.all) > 0, func() ([]byte, error) {
		return bars("A first run: one insert, one caller", "p50 as a multiple of the plain transaction (less is better)", first.rows, first.all, 1)
	})
	slow := ratioSeries(r, throughputs, []column{{"", "first/realistic/flush/8"}})
	add("slow-flush", len(slow.all) > 0, func() ([]byte, error) {
		return bars("A second commit waits for the disk again: realistic write, 8 clients, flush 1 ms slower",
			"throughput as a multiple of the plain transaction (more is better)", slow.rows, slow.all, 1)
	})
	replay := ratioSeries(r, p50s, []column{{"loopback", "replay/insert/loopback/1"}, {"1 ms of round-trip time", "replay/insert/rtt/1"}})
	add("replay", len(replay.all) > 0, func() ([]byte, error) {
		return bars("A replay, one caller", "p50 as a multiple of a SELECT by primary key (less is better)", replay.rows, replay.all, 1)
	})
	storms := stormSeries(r)
	add("hot-key", len(storms.rows) > 0, func() ([]byte, error) {
		return bars("1,000 duplicates of one key, and what other keys notice", "p99 of the bystanders in ms (less is better)", storms.rows, storms.all, 0)
	})
	growth := growthLines(r)
	add("growth", len(growth) > 0 && len(records(r)) > 1, func() ([]byte, error) {
		return lines("idem.Do with more and more records", "records in the table", "p50 as a multiple of that at 10,000", records(r), growth)
	})
	wal := walSeries(r)
	add("wal", len(wal.rows) > 0, func() ([]byte, error) {
		return bars("What a first run writes ahead: one insert, response of 200 B", "bytes of write-ahead log (less is better)", wal.rows, wal.all, 0)
	})
	return all
}

// chart is rows of bars in one or several series.
type chart struct {
	rows []string
	all  []series
}

// ratioSeries makes a series of each cell that was measured, with a row for each contestant that is in one of them.
func ratioSeries(r *result.Results, ratios func(*result.Cell, string, string) []float64, columns []column) chart {
	columns = slices.DeleteFunc(columns, func(c column) bool { return r.Cell(c.cell) == nil })
	var c chart
	for _, who := range contestant.All() {
		if slices.ContainsFunc(columns, func(column column) bool { return r.Cell(column.cell).Entry(who.Name) != nil }) {
			c.rows = append(c.rows, who.Name)
		}
	}
	for _, column := range columns {
		s := series{name: column.heading}
		for _, name := range c.rows {
			spread := measure.Spread{}
			if found := ratios(r.Cell(column.cell), name, r.Cell(column.cell).Unit); len(found) > 0 {
				spread = measure.Of(found)
			}
			s.figures, s.least, s.largest = append(s.figures, spread.Median), append(s.least, spread.Min), append(s.largest, spread.Max)
		}
		c.all = append(c.all, s)
	}
	return c
}

func stormSeries(r *result.Results) chart {
	c := chart{all: []series{{name: "without them"}, {name: "with them"}}}
	for _, s := range r.Storms {
		if s.Error == "" {
			c.rows = append(c.rows, s.Name)
			c.all[0].figures, c.all[1].figures = append(c.all[0].figures, s.CalmP99/1e3), append(c.all[1].figures, s.StormP99/1e3)
		}
	}
	return c
}

func walSeries(r *result.Results) chart {
	c := chart{all: make([]series, 1)}
	for _, p := range r.Profiles {
		if p.Error == "" {
			c.rows = append(c.rows, p.Name)
			c.all[0].figures = append(c.all[0].figures, p.WAL.First)
		}
	}
	return c
}

func growthLines(r *result.Results) []series {
	var all []series
	for _, point := range []struct{ cell, what string }{
		{"first/insert/grown/1", "first run, 1 client"}, {"first/insert/grown/8", "first run, 8 clients"}, {"replay/insert/grown/1", "replay, 1 client"},
	} {
		cell := r.Cell(point.cell)
		if cell == nil {
			continue
		}
		s := series{name: point.what}
		for _, e := range cell.Entries {
			spread := measure.Of(p50s(cell, e.Name, cell.Unit))
			s.figures, s.least, s.largest = append(s.figures, spread.Median), append(s.least, spread.Min), append(s.largest, spread.Max)
		}
		all = append(all, s)
	}
	return all
}

// records are the sizes of the table that the entries of a cell about growth are named after.
func records(r *result.Results) []float64 {
	var sizes []float64
	if cell := r.Cell("replay/insert/grown/1"); cell != nil {
		for _, e := range cell.Entries {
			n, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSuffix(e.Name, " records"), ",", ""), 64)
			if err != nil {
				return nil
			}
			sizes = append(sizes, n)
		}
	}
	return sizes
}
