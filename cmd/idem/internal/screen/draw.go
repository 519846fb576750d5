package screen

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/idem-go/idem/stats"
)

var blocks = []rune("▁▂▃▄▅▆▇█")

// curve returns a sparkline of the last width values, scaled between their minimum and maximum.
func curve(history []stats.Stats, of func(stats.Stats) float64, width int) string {
	if width <= 0 || len(history) < 2 {
		return ""
	}
	history = history[max(0, len(history)-width):]
	least, most := of(history[0]), of(history[0])
	for _, v := range history {
		least, most = min(least, of(v)), max(most, of(v))
	}
	var drawn strings.Builder
	for _, v := range history {
		step := 0
		if most > least {
			step = int((of(v) - least) / (most - least) * float64(len(blocks)-1))
		}
		drawn.WriteRune(blocks[step])
	}
	return drawn.String()
}

// bar returns a progress bar for a share between 0 and 1.
func bar(share float64, width int) string {
	full := int(min(1, max(0, share)) * float64(width))
	return "[" + strings.Repeat("#", full) + strings.Repeat(" ", width-full) + "]"
}

func padRight(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

func padLeft(text string, width int) string {
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(text))) + text
}

var (
	boldStyle   = lipgloss.NewStyle().Bold(true)
	dimStyle    = lipgloss.NewStyle().Faint(true)
	redStyle    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	yellowStyle = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
)

func (m model) bold(text string) string   { return m.paint(boldStyle, text) }
func (m model) dim(text string) string    { return m.paint(dimStyle, text) }
func (m model) red(text string) string    { return m.paint(redStyle, text) }
func (m model) yellow(text string) string { return m.paint(yellowStyle, text) }

func (m model) paint(style lipgloss.Style, text string) string {
	if !m.Colour {
		return text
	}
	return style.Render(text)
}
