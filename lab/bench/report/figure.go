package report

import (
	"slices"

	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
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
	fresh := ratioSeries(r, (*result.Cell).P50s, []column{
		{"loopback", first(result.Insert, result.Loopback, 1)}, {"1 ms of round-trip time", first(result.Insert, result.RTT, 1)}, {"flush 1 ms slower", first(result.Insert, result.Flush, 1)},
	})
	add("first-run", len(fresh.all) > 0, func() ([]byte, error) {
		return bars("A first run: one insert, one caller", "p50 as a multiple of the plain transaction (less is better)", fresh.rows, fresh.all, 1)
	})
	slow := ratioSeries(r, (*result.Cell).Throughputs, []column{{"", first(result.Realistic, result.Flush, 8)}})
	add("slow-flush", len(slow.all) > 0, func() ([]byte, error) {
		return bars("A second commit waits for the disk again: realistic write, 8 clients, flush 1 ms slower",
			"throughput as a multiple of the plain transaction (more is better)", slow.rows, slow.all, 1)
	})
	again := ratioSeries(r, (*result.Cell).P50s, []column{{"loopback", replay(result.Loopback, 1)}, {"1 ms of round-trip time", replay(result.RTT, 1)}})
	add("replay", len(again.all) > 0, func() ([]byte, error) {
		return bars("A replay, one caller", "p50 as a multiple of a SELECT by primary key (less is better)", again.rows, again.all, 1)
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
	columns = slices.DeleteFunc(columns, func(c column) bool { return r.Cell(c.point) == nil })
	var c chart
	for _, who := range everybody() {
		if slices.ContainsFunc(columns, func(column column) bool { return r.Cell(column.point).Entry(who.Name) != nil }) {
			c.rows = append(c.rows, who.Name)
		}
	}
	for _, column := range columns {
		s := series{name: column.heading}
		for _, name := range c.rows {
			spread := measure.Spread{}
			if found := ratios(r.Cell(column.point), name, r.Cell(column.point).Unit); len(found) > 0 {
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
	for _, point := range result.GrowthPoints() {
		cell := r.Cell(point)
		if cell == nil {
			continue
		}
		s := series{name: point.Spell()}
		for _, e := range cell.Entries {
			spread := measure.Of(cell.P50s(e.Name, cell.Unit))
			s.figures, s.least, s.largest = append(s.figures, spread.Median), append(s.least, spread.Min), append(s.largest, spread.Max)
		}
		all = append(all, s)
	}
	return all
}

// records are the sizes of the tables in the cells about growth.
func records(r *result.Results) []float64 {
	for _, point := range result.GrowthPoints() {
		if cell := r.Cell(point); cell != nil {
			var sizes []float64
			for _, e := range cell.Entries {
				sizes = append(sizes, float64(e.Records))
			}
			return sizes
		}
	}
	return nil
}
