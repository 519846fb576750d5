package ui

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
)

const (
	historySpan = time.Hour
	samplePause = 15 * time.Second // the time between two samples
	sampleGap   = time.Minute      // a longer time without a sample is a gap in the line of a chart
	mostTopics  = 4                // maximum number of topics with a chart
)

// history has the samples of the last hour, in memory.
type history struct {
	mu      sync.Mutex
	samples []sample
}

// sample has the figures of one reading of the overview. A figure that is unknown has no entry.
type sample struct {
	at      time.Time
	figures map[string]float64
	lag     map[string]float64 // the age of the oldest message of each topic, in seconds
}

// add returns the stored samples of the last hour, followed by the new sample. It stores the new
// sample only if the last stored sample is about samplePause old, because every viewer of the
// overview adds a sample.
func (h *history) add(one sample) []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Clone the samples, because another viewer may be drawing the old slice.
	fresh := slices.DeleteFunc(slices.Clone(h.samples), func(old sample) bool { return one.at.Sub(old.at) > historySpan })
	all := append(fresh, one)
	if n := len(h.samples); n == 0 || one.at.Sub(h.samples[n-1].at) >= samplePause-time.Second {
		h.samples = all
	}
	return all
}

// series is a figure that has a chart.
type series struct {
	title, figure string
	perMinute     bool   // the figure is a counter, and the chart shows its growth
	mood          string // how serious a last value above zero is: bad, or empty
	unknown       string // why the figure may be unknown
}

const notRead = "The figure could not be read."

var allSeries = []series{
	{"Executed per minute", "executed", true, "", notRead},
	{"Replayed per minute", "replayed", true, "", "A replay writes nothing to the database, so only the metrics of your programs count replays."},
	{"In progress", "in progress", false, "", notRead},
	{"Parked operations", "parked", false, "bad", notRead},
	{"Dead letters", "dead", false, "bad", notRead},
}

// chart is a series as a template draws it.
type chart struct {
	Title, Now, Most, Mood string
	Path                   string // SVG path data in a box of chartWidth by chartHeight
	Note                   string // why there is no line; empty if there is one
}

const chartWidth, chartHeight = 240, 48

// charts returns a chart for each series, and for each of the topics with the oldest messages. The
// right edge of a chart is the time of the last sample. The chart of a series without a point has a
// note and no line.
func charts(samples []sample) (all []chart) {
	now := samples[len(samples)-1].at
	for _, s := range allSeries {
		points, note := pointsOf(samples, func(one sample) (float64, bool) { v, known := one.figures[s.figure]; return v, known }), s.unknown
		if s.perMinute && len(points) > 0 {
			points, note = growth(points), "Not known before the next reading, in 15 seconds."
		}
		if len(points) > 0 {
			all = append(all, newChart(s.title, s.mood, points, now, rounded))
		} else {
			all = append(all, chart{Title: s.title, Note: note})
		}
	}
	return append(all, lagCharts(samples, now)...)
}

// lagCharts returns a chart for each of the topics with the oldest messages. If no topic had a
// message in the last hour, it returns a single chart with the value zero.
func lagCharts(samples []sample, now time.Time) (all []chart) {
	age := func(v float64) string { return page.Age(time.Duration(v * float64(time.Second))) }
	none := pointsOf(samples, func(one sample) (float64, bool) { return 0, one.lag != nil })
	if len(none) == 0 {
		return []chart{{Title: "Outbox lag", Note: notRead}}
	}
	topics := map[string]float64{}
	for _, one := range samples {
		for topic, lag := range one.lag {
			topics[topic] = max(topics[topic], lag)
		}
	}
	if len(topics) == 0 {
		return []chart{newChart("Outbox lag", "warn", none, now, age)}
	}
	names := slices.SortedFunc(maps.Keys(topics), func(a, b string) int {
		return cmp.Or(cmp.Compare(topics[b], topics[a]), strings.Compare(a, b))
	})
	for _, topic := range names[:min(len(names), mostTopics)] {
		points := pointsOf(samples, func(one sample) (float64, bool) { return one.lag[topic], one.lag != nil })
		all = append(all, newChart("Outbox lag of the topic "+topic, "warn", points, now, age))
	}
	return all
}

type point struct {
	at time.Time
	v  float64
}

func pointsOf(samples []sample, figure func(sample) (float64, bool)) (points []point) {
	for _, one := range samples {
		if v, known := figure(one); known {
			points = append(points, point{one.at, v})
		}
	}
	return points
}

// growth returns the growth of a counter per minute between consecutive samples. It leaves out an
// interval in which the counter was reset, and an interval longer than sampleGap.
func growth(counts []point) (rates []point) {
	for i := 1; i < len(counts); i++ {
		grown, took := counts[i].v-counts[i-1].v, counts[i].at.Sub(counts[i-1].at)
		if grown >= 0 && took > 0 && took < sampleGap {
			rates = append(rates, point{counts[i].at, grown / took.Minutes()})
		}
	}
	return rates
}

// newChart scales the points to the box of a chart. It begins a new line after an interval longer
// than sampleGap. points must not be empty.
func newChart(title, mood string, points []point, now time.Time, say func(float64) string) chart {
	most, last := 0.0, points[len(points)-1]
	for _, p := range points {
		most = max(most, p.v)
	}
	c := chart{Title: title, Now: say(last.v), Most: say(most)}
	if last.v > 0 {
		c.Mood = mood
	}
	// The x axis is the hour up to now, and leaves 6 units free at the right. The y axis begins at
	// zero and ends at the maximum, or at 1 if the maximum is smaller.
	var path strings.Builder
	for i, p := range points {
		command := "L"
		if i == 0 || p.at.Sub(points[i-1].at) > sampleGap {
			command = "M"
		}
		x := (chartWidth - 6) * (1 - now.Sub(p.at).Seconds()/historySpan.Seconds())
		y := chartHeight - 2 - (chartHeight-4)*p.v/max(most, 1)
		fmt.Fprintf(&path, "%s%.1f %.1f", command, x, y)
		if command == "M" {
			path.WriteString("h.1") // makes a single point visible
		}
	}
	c.Path = path.String()
	return c
}

func rounded(v float64) string { return page.Count(int64(math.Round(v))) }
