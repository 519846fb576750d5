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
	samplePause = 15 * time.Second // between two samples
	sampleGap   = time.Minute      // without a sample, over which no line is drawn
	mostTopics  = 4                // of which the lag is drawn
)

// history has samples of the last hour.
type history struct {
	mu      sync.Mutex
	samples []sample
}

// sample is what one reading of the overview has found. A figure that is not known is not in it.
type sample struct {
	at      time.Time
	figures map[string]float64
	lag     map[string]float64 // by topic, in seconds
}

// add keeps a sample, unless there is one of the last seconds, and returns all of the last hour with it.
func (h *history) add(one sample) []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh := slices.DeleteFunc(slices.Clone(h.samples), func(old sample) bool { return one.at.Sub(old.at) > historySpan }) // others draw what is kept
	all := append(fresh, one)
	if n := len(h.samples); n == 0 || one.at.Sub(h.samples[n-1].at) >= samplePause-time.Second {
		h.samples = all
	}
	return all
}

// series is a figure of the samples.
type series struct {
	title, figure string
	perMinute     bool   // the figure counts up, and its growth is drawn
	mood          string // how it looks above zero
}

var allSeries = []series{
	{"Executed per minute", "executed", true, ""},
	{"Replayed per minute", "replayed", true, ""},
	{"In progress", "in progress", false, ""},
	{"Parked operations", "parked", false, "bad"},
	{"Dead letters", "dead", false, "bad"},
}

// chart is a series as it is drawn.
type chart struct {
	Title, Now, Most, Mood string
	Path                   string // in a box of chartWidth by chartHeight
}

const chartWidth, chartHeight = 240, 48

// charts draws the samples up to the last of them.
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

func pointsOf(samples []sample, figure func(sample) (float64, bool)) (points []point) {
	for _, one := range samples {
		if v, known := figure(one); known {
			points = append(points, point{one.at, v})
		}
	}
	return points
}

// growth returns by how much a count has grown per minute. A count that was reset has not.
func growth(counts []point) (rates []point) {
	for i := 1; i < len(counts); i++ {
		grown, took := counts[i].v-counts[i-1].v, counts[i].at.Sub(counts[i-1].at)
		if grown >= 0 && took > 0 && took < sampleGap {
			rates = append(rates, point{counts[i].at, grown / took.Minutes()})
		}
	}
	return rates
}

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
			path.WriteString("h.1") // a point alone is seen, too
		}
	}
	c.Path = path.String()
	return c
}

func rounded(v float64) string { return page.Count(int64(math.Round(v))) }
