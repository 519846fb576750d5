package screen

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/idem-go/idem/stats"
)

func figures() stats.Stats {
	long := strings.Repeat("what this rests on, ", 20)
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return stats.Stats{
		ReadAt: at,
		Records: stats.Records{
			Count:         stats.Figure[int64]{Value: 123456789012, Quality: stats.Estimate, Note: long},
			Expired:       stats.Figure[int64]{Quality: stats.Unknown, Note: long},
			OldestExpired: stats.Figure[time.Duration]{Value: 48 * time.Hour, Quality: stats.Estimate, Note: long},
			DeadRows:      stats.Figure[int64]{Value: 1 << 40, Quality: stats.Exact},
			HeapBytes:     1 << 50, IndexBytes: 1 << 40,
		},
		InFlight: stats.InFlight{Transactions: 7, Keys: 9, Oldest: stats.Figure[time.Duration]{Value: time.Hour, Quality: stats.Exact}},
		Purge: stats.Purge{
			Lag: stats.Figure[time.Duration]{Value: 100 * time.Hour, Quality: stats.Exact},
			Sweeps: stats.Figure[[]stats.Sweep]{Quality: stats.Exact, Value: []stats.Sweep{{
				Table: "records", InProgress: true, Idle: time.Second, Pages: 50, TotalPages: 100, Deleted: 1e9, LastFinishedAt: at.Add(-time.Hour), LastDeleted: 1e9,
			}}},
		},
	}
}

func update(m model, msg tea.Msg) model {
	next, _ := m.Update(msg)
	return next.(model)
}

// Terminals have 80 columns or fewer, and no line may wrap.
func TestScreenFitsAnyTerminal(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ width, height int }{{80, 24}, {200, 60}, {40, 10}, {20, 3}, {1, 1}} {
		m := newModel(context.Background(), Options{Where: strings.Repeat("host ", 40), Every: time.Second, Colour: true})
		m = update(m, tea.WindowSizeMsg{Width: size.width, Height: size.height})
		for i := range 60 {
			v := figures()
			v.InFlight.Keys = int64(i % 17)
			m = update(m, read{v, nil, time.Millisecond})
			if i%2 == 0 {
				m = update(m, read{err: errors.New(strings.Repeat("no\nanswer ", 50))})
			}
			lines := strings.Split(m.draw(), "\n")
			if len(lines) > size.height {
				t.Fatalf("%v: %d lines", size, len(lines))
			}
			for _, line := range lines {
				if width := ansi.StringWidth(line); width > size.width {
					t.Fatalf("%v: a line has %d columns: %q", size, width, line)
				}
			}
		}
	}
}

func TestScreenShowsTheFiguresAndWhatStandsOut(t *testing.T) {
	t.Parallel()
	m := newModel(context.Background(), Options{Where: "127.0.0.1", Every: time.Second})
	if got := m.draw(); !strings.Contains(got, "reading") {
		t.Errorf("before the first reading:\n%s", got)
	}
	m = update(m, read{figures(), nil, time.Millisecond})
	got := m.draw()
	for _, part := range []string{"~ 123,456,789,012", "?", "50 %", "a transaction has held keys for 1 h: idem stuck", "nothing was purged for 4 d 4 h: idem doctor", "12:00:00 UTC"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not shown:\n%s", part, got)
		}
	}
}

// After a failed reading the screen shows the last figures. The next good reading removes the
// error.
func TestScreenOutlivesAnErrorOfTheServer(t *testing.T) {
	t.Parallel()
	m := newModel(context.Background(), Options{Every: time.Second})
	m = update(m, read{figures(), nil, time.Millisecond})
	m = update(m, read{err: errors.New("connection refused")})
	if got := m.draw(); !strings.Contains(got, "cannot read: connection refused") || !strings.Contains(got, "123,456,789,012") {
		t.Errorf("after an error:\n%s", got)
	}
	m = update(m, read{figures(), nil, time.Millisecond})
	if got := m.draw(); strings.Contains(got, "cannot read") {
		t.Errorf("after a good reading:\n%s", got)
	}
}

// With a slow server there is still only one reading at a time, and keys still work.
func TestScreenReadsOnceAtATime(t *testing.T) {
	t.Parallel()
	m := newModel(context.Background(), Options{Every: time.Second})
	if m.Init() == nil || !m.reading {
		t.Fatal("it does not begin with a reading")
	}
	m = update(m, tick{})
	m = update(m, tea.KeyPressMsg{Code: 'p', Text: "p"})
	if !m.paused || !m.reading {
		t.Errorf("paused %v, reading %v", m.paused, m.reading)
	}
	m = update(m, read{figures(), nil, time.Second})
	if m = update(m, tick{}); m.reading {
		t.Error("it reads although it is paused")
	}
	m = update(m, tea.KeyPressMsg{Code: 'p', Text: "p"})
	if m = update(m, tick{}); !m.reading {
		t.Error("it does not read on")
	}
}
