package ui

import (
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
	samplePause = 15 * time.Second // interval between two samples
	sampleGap   = time.Minute      // no line is drawn across a longer gap
	mostTopics  = 4                // number of topics in the charts
)

// history holds the samples of the last hour.
type history struct {
	mu      sync.Mutex
	samples []sample
}

// sample holds the figures of one reading of the overview. Unknown figures are missing.
type sample struct {
	at      time.Time
	figures map[string]float64
	lag     map[string]float64 // seconds by topic
}

// add returns the samples of the last hour and one. It stores the sample, unless there is already
// one from the last seconds.
func (h *history) add(one sample) []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Clone, because other requests may be drawing the stored slice.
	fresh := slices.DeleteFunc(slices.Clone(h.samples), func(old sample) bool { return one.at.Sub(old.at) > historySpan })
	all := append(fresh, one)
	if n := len(h.samples); n == 0 || one.at.Sub(h.samples[n-1].at) >= samplePause-time.Second {
		h.samples = all
	}
	return all
}

// series is a figure that is drawn as a chart.
type series struct {
	title, figure string
	perMinute     bool   // draw the growth of a counter
	mood          string // style for values above zero
}

var allSeries = []series{
	{"Executed per minute", "executed", true, ""},
	{"Replayed per minute", "replayed", true, ""},
	{"In progress", "in progress", false, ""},
	{"Parked operations", "parked", false, "bad"},
	{"Dead letters", "dead", false, "bad"},
}

// chart is a series ready for drawing.
type chart struct {
	Title, Now, Most, Mood string
	Path                   string // SVG path in a box of chartWidth by chartHeight
}

const chartWidth, chartHeight = 240, 48

// charts returns the charts of all series that have samples, and of the topics with the largest
// lag. The time axis ends at the last sample.
func charts(samples []sample) (all []chart) {
	for _, s := range allSeries {
		points := pointsOf(samples, func(one sample) (float64, bool) { v, known := one.figures[s.figure]; return v, known })
		if s.perMinute {
			points = growth(points)
		}
		if len(points) > 0 {
			all = append(all, newChart(s.title, s.mood, points, samples[len(samples)-1].at, rounded))
		}
	}
	topics := map[string]float64{}
	for _, one := range samples {
		for topic, lag := range one.lag {
			topics[topic] = max(topics[topic], lag)
		}
	}
	names := slices.SortedFunc(maps.Keys(topics), func(a, b string) int {
		if topics[a] != topics[b] {
			return int(math.Copysign(1, topics[b]-topics[a]))
		}
		return strings.Compare(a, b)
	})
	for _, topic := range names[:min(len(names), mostTopics)] {
		points := pointsOf(samples, func(one sample) (float64, bool) { return one.lag[topic], one.lag != nil })
		all = append(all, newChart("Lag of the topic "+topic, "warn", points, samples[len(samples)-1].at,
			func(v float64) string { return page.Age(time.Duration(v * float64(time.Second))) }))
	}
	return all
}

type point struct {
	at time.Time
	v  float64
}

// pointsOf returns the points of the samples for which the figure is known.
func pointsOf(samples []sample, figure func(sample) (float64, bool)) (points []point) {
	for _, one := range samples {
		if v, known := figure(one); known {
			points = append(points, point{one.at, v})
		}
	}
	return points
}

// growth returns the growth of a counter per minute. It skips decreases, which are resets, and
// gaps.
func growth(counts []point) (rates []point) {
	for i := 1; i < len(counts); i++ {
		grown, took := counts[i].v-counts[i-1].v, counts[i].at.Sub(counts[i-1].at)
		if grown >= 0 && took > 0 && took < sampleGap {
			rates = append(rates, point{counts[i].at, grown / took.Minutes()})
		}
	}
	return rates
}

// newChart draws points as an SVG path, with a new line after each gap.
func newChart(title, mood string, points []point, now time.Time, say func(float64) string) chart {
	most, last := 0.0, points[len(points)-1]
	for _, p := range points {
		most = max(most, p.v)
	}
	c := chart{Title: title, Now: say(last.v), Most: say(most)}
	if last.v > 0 {
		c.Mood = mood
	}
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
