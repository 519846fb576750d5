package ui

import (
	"strings"
	"testing"
	"time"
)

func TestHistory_DrawsTheLastHour(t *testing.T) {
	t.Parallel()
	var h history
	begun := time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)
	var all []sample
	for n := range 5 * 60 * 4 { // five hours
		at := begun.Add(time.Duration(n) * samplePause)
		one := sample{at: at, figures: map[string]float64{"parked": 3, "executed": float64(n * 30)}, lag: map[string]float64{"orders": 90}}
		if n%2 == 0 {
			one.lag = map[string]float64{"orders": 90, "invoices": 5}
		}
		all = h.add(one)
		h.add(sample{at: at.Add(time.Second)}) // a viewer between two readings
	}
	if len(h.samples) > 242 || len(all) < 240 {
		t.Errorf("%d samples are kept, %d drawn", len(h.samples), len(all))
	}
	drawn := map[string]chart{}
	for _, c := range charts(all) {
		drawn[c.Title] = c
	}
	for title, want := range map[string]string{"Parked operations": "3", "Executed per minute": "120", "Outbox lag of the topic orders": "1 min 30 s", "Outbox lag of the topic invoices": "0 ms"} {
		if got := drawn[title]; got.Now != want || !strings.HasPrefix(got.Path, "M") {
			t.Errorf("%s: %+.80v, want %s", title, got, want)
		}
	}
	if got := drawn["Outbox lag of the topic invoices"].Most; got != "5 s" {
		t.Errorf("most: %s", got)
	}
	if got := drawn["Replayed per minute"]; got.Path != "" || !strings.Contains(got.Note, "A replay writes nothing") {
		t.Errorf("replays are drawn, and nothing counts them: %+v", got)
	}
	if got := drawn["Parked operations"]; got.Mood != "bad" || strings.Count(got.Path, "M") != 1 {
		t.Errorf("%+v", got)
	}
	late := h.add(sample{at: all[len(all)-1].at.Add(20 * time.Minute), figures: map[string]float64{"parked": 0, "executed": 0}})
	for _, c := range charts(late) {
		if c.Title == "Parked operations" && (strings.Count(c.Path, "M") != 2 || c.Mood != "") {
			t.Errorf("a line across a gap: %+v", c)
		}
		if c.Title == "Executed per minute" && strings.Contains(c.Now, "-") {
			t.Errorf("a counter that was reset grows: %+v", c)
		}
	}
}

func TestCharts_SayWhyThereIsNoLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		one  sample
		want string // title: value, or note
	}{
		"unknown": {sample{}, "Executed per minute: The figure could not be read." +
			"|Replayed per minute: A replay writes nothing to the database, so only the metrics of your programs count replays." +
			"|In progress: The figure could not be read.|Parked operations: The figure could not be read.|Dead letters: The figure could not be read." +
			"|Outbox lag: The figure could not be read."},
		"first": {sample{figures: map[string]float64{"executed": 7, "replayed": 7, "in progress": 1, "parked": 2, "dead": 3}, lag: map[string]float64{}},
			"Executed per minute: Not known before the next reading, in 15 seconds.|Replayed per minute: Not known before the next reading, in 15 seconds." +
				"|In progress: 1|Parked operations: 2|Dead letters: 3|Outbox lag: 0 ms"},
	} {
		var got []string
		for _, c := range charts([]sample{test.one}) {
			got = append(got, c.Title+": "+c.Now+c.Note)
		}
		if text := strings.Join(got, "|"); text != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, text, test.want)
		}
	}
}
