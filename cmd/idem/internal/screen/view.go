package screen

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/stats"
)

// View returns the screen for bubbletea.
func (m model) View() tea.View {
	view := tea.NewView(m.draw())
	view.AltScreen = true
	view.WindowTitle = "idem watch"
	return view
}

// draw returns the lines of the screen, cut to its height and width. The last line is always the
// footer.
func (m model) draw() string {
	lines := append(m.head(), m.body()...)
	foot := m.foot()
	if room := m.height - 1; len(lines) > room {
		lines = lines[:max(0, room)]
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, foot)
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "…")
	}
	return strings.Join(lines, "\n")
}

// head returns the title and, if the last reading failed, its error.
func (m model) head() []string {
	title := m.bold("idem watch") + "  " + page.Safe(m.Where)
	switch {
	case m.err != nil:
		return []string{title, "", m.red("cannot read: " + page.Safe(oneLine(m.err)))}
	case !m.known:
		return []string{title, "", "reading …"}
	}
	return []string{title, ""}
}

// foot returns the keys and the time of the last reading.
func (m model) foot() string {
	state := fmt.Sprintf("every %v", m.Every)
	if m.paused {
		state = m.yellow("paused")
	}
	if m.known {
		state += fmt.Sprintf("   as of %s   read in %s", m.now.ReadAt.UTC().Format("15:04:05 UTC"), page.Age(m.took))
	}
	return m.dim("q quit   p pause   ") + state
}

// body returns one line per figure, then the state of the purge and the notes.
func (m model) body() []string {
	if !m.known {
		return nil
	}
	v := m.now
	lines := []string{
		m.line("records", number(v.Records.Count, page.Count), func(v stats.Stats) float64 { return float64(v.Records.Count.Value) }),
		m.line("expired", number(v.Records.Expired, page.Count), func(v stats.Stats) float64 { return float64(v.Records.Expired.Value) }),
		m.line("keys in flight", page.Count(v.InFlight.Keys), func(v stats.Stats) float64 { return float64(v.InFlight.Keys) }),
		m.line("oldest in flight", number(v.InFlight.Oldest, page.Age), func(v stats.Stats) float64 { return v.InFlight.Oldest.Value.Seconds() }),
		m.line("dead rows", number(v.Records.DeadRows, page.Count), func(v stats.Stats) float64 { return float64(v.Records.DeadRows.Value) }),
		m.line("table", page.Bytes(v.Records.HeapBytes), func(v stats.Stats) float64 { return float64(v.Records.HeapBytes) }),
		m.line("index", page.Bytes(v.Records.IndexBytes), func(v stats.Stats) float64 { return float64(v.Records.IndexBytes) }),
		"",
	}
	lines = append(lines, m.purging()...)
	return append(lines, m.notes()...)
}

const (
	nameWidth  = 18
	valueWidth = 18
)

// line returns a name, a value and a curve of the last readings.
func (m model) line(name, value string, of func(stats.Stats) float64) string {
	return m.dim(padRight(name, nameWidth)) + padLeft(value, valueWidth) + "  " + m.dim(curve(m.history, of, m.width-nameWidth-valueWidth-3))
}

// number formats a figure. It marks an estimate, and returns "?" for an unknown value.
func number[T any](f stats.Figure[T], say func(T) string) string {
	switch f.Quality {
	case stats.Exact:
		return say(f.Value)
	case stats.Estimate:
		return "~ " + say(f.Value)
	}
	return "?"
}

// purging returns the lines about the sweep of the table records.
func (m model) purging() []string {
	v := m.now
	sweep := v.Purge.Sweep("records")
	last := "none has finished yet"
	if !v.Purge.Sweeps.Known() {
		last = "unknown"
	}
	if !sweep.LastFinishedAt.IsZero() {
		last = fmt.Sprintf("finished %s ago, %s deleted", page.Age(v.ReadAt.Sub(sweep.LastFinishedAt)), page.Count(sweep.LastDeleted))
	}
	lines := []string{m.dim(padRight("last sweep", nameWidth)) + last}
	switch {
	case sweep.InProgress && !sweep.Active():
		lines = append(lines, m.dim(padRight("sweep", nameWidth))+"one was left half-way, and no process continues it")
	case sweep.WaitingFor != "":
		lines = append(lines, m.dim(padRight("sweep", nameWidth))+m.yellow("waits for: "+page.Safe(string(sweep.WaitingFor))))
	case sweep.InProgress && sweep.TotalPages > 0:
		share := float64(sweep.Pages) / float64(sweep.TotalPages)
		lines = append(lines, m.dim(padRight("sweep", nameWidth))+bar(share, 30)+fmt.Sprintf(" %3.0f %%  %s deleted", 100*share, page.Count(sweep.Deleted)))
	default:
		lines = append(lines, m.dim(padRight("sweep", nameWidth))+"none is under way")
	}
	return append(lines, "")
}

// notes returns the notes of inexact figures, and warnings about figures that need attention.
func (m model) notes() []string {
	var lines []string
	add := func(name string, quality stats.Quality, note string) {
		if quality != stats.Exact && note != "" {
			lines = append(lines, m.dim(fmt.Sprintf("%s: %s", name, note)))
		}
	}
	v := m.now
	add("records", v.Records.Count.Quality, v.Records.Count.Note)
	add("expired", v.Records.Expired.Quality, v.Records.Expired.Note)
	add("oldest in flight", v.InFlight.Oldest.Quality, v.InFlight.Oldest.Note)
	if v.InFlight.Oldest.Known() && v.InFlight.Oldest.Value > time.Minute {
		lines = append(lines, m.yellow("a transaction has held keys for "+page.Age(v.InFlight.Oldest.Value)+": idem stuck"))
	}
	if v.Purge.Lag.Known() && v.Purge.Lag.Value > 24*time.Hour {
		lines = append(lines, m.yellow("nothing was purged for "+page.Age(v.Purge.Lag.Value)+": idem doctor"))
	}
	return lines
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
