// Package page formats output for a terminal: tables, name-value pairs and colors.
package page

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/idem-go/idem/internal/display"
)

// Page writes text for a person. After the first write error it writes nothing more; Err returns
// that error.
type Page struct {
	out   io.Writer
	color bool
	err   error
}

// New returns a page that writes to out, with ANSI colors if color is true.
func New(out io.Writer, color bool) *Page { return &Page{out: out, color: color} }

// Err returns the first write error.
func (p *Page) Err() error { return p.err }

// Printf writes formatted text. The caller passes untrusted text through [Safe] first.
func (p *Page) Printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format, args...)
	}
}

// Pair is a line of Pairs.
type Pair struct{ Name, Value string }

// Pairs writes one line for each pair, with the values aligned. A name must not contain colors,
// because Pairs prints it in a faint style.
func (p *Page) Pairs(pairs []Pair) {
	width := 0
	for _, pair := range pairs {
		width = max(width, ansi.StringWidth(pair.Name))
	}
	for _, pair := range pairs {
		p.Printf("%s%s  %s\n", p.Dim(pair.Name), gap(pair.Name, width), pair.Value)
	}
}

// gap returns the spaces that pad text to width columns.
func gap(text string, width int) string {
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

// TimeAndAge formats t in UTC, with its distance from now.
func (p *Page) TimeAndAge(t, now time.Time) string {
	return Time(t) + p.Dim(" ("+Relative(t, now)+")")
}

// Dim returns text in a faint style, for details.
func (p *Page) Dim(text string) string { return p.paint("2", text) }

// Bold returns text in bold.
func (p *Page) Bold(text string) string { return p.paint("1", text) }

// Red returns text in red, for problems.
func (p *Page) Red(text string) string { return p.paint("31", text) }

// Yellow returns text in yellow, for warnings.
func (p *Page) Yellow(text string) string { return p.paint("33", text) }

// Green returns text in green, for success.
func (p *Page) Green(text string) string { return p.paint("32", text) }

// paint wraps text in an ANSI escape sequence, if the page has colors.
func (p *Page) paint(code, text string) string {
	if !p.color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Safe escapes untrusted text, so that it cannot contain control sequences of a terminal. It is
// display.Printable.
func Safe(text string) string { return display.Printable(text) }

// SafeLines is like Safe, but keeps line breaks and tabs.
func SafeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		parts := strings.Split(line, "\t")
		for j, part := range parts {
			parts[j] = Safe(part)
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}

// Column is a column of a Table.
type Column struct {
	Name  string
	Right bool // aligned to the right
}

// Columns returns columns with the given names. A column whose name begins with ">" is aligned to
// the right.
func Columns(names ...string) []Column {
	columns := make([]Column, len(names))
	for i, name := range names {
		columns[i].Name, columns[i].Right = strings.CutPrefix(name, ">")
	}
	return columns
}

// Table writes a header line and the rows, with aligned columns. Each row has one cell for each
// column.
func (p *Page) Table(columns []Column, rows [][]string) {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = ansi.StringWidth(c.Name)
		for _, row := range rows {
			widths[i] = max(widths[i], ansi.StringWidth(row[i]))
		}
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	p.row(columns, widths, names, p.Dim)
	for _, row := range rows {
		p.row(columns, widths, row, func(text string) string { return text })
	}
}

// row writes one line of a table. It pads the last cell only if the cell is aligned to the right,
// so that lines have no trailing spaces.
func (p *Page) row(columns []Column, widths []int, cells []string, paint func(string) string) {
	var line strings.Builder
	for i, cell := range cells {
		space := gap(cell, widths[i])
		switch {
		case columns[i].Right:
			line.WriteString(space + paint(cell))
		case i == len(cells)-1:
			line.WriteString(paint(cell))
		default:
			line.WriteString(paint(cell) + space)
		}
		if i < len(cells)-1 {
			line.WriteString("  ")
		}
	}
	p.Printf("%s\n", line.String())
}

// Wrap breaks text into lines of at most width columns. The first line begins with lead, and the
// other lines are indented by the width of lead.
func Wrap(text, lead string, width int) string {
	indent := ansi.StringWidth(lead)
	lines := strings.Split(ansi.Wordwrap(text, max(20, width-indent), ""), "\n")
	return lead + strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}

// Age formats a duration with at most two units, which is precise enough to compare ages.
func Age(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch day := 24 * time.Hour; {
	case d < time.Second:
		return fmt.Sprintf("%s%d ms", sign, d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%s%d s", sign, d/time.Second)
	case d < time.Hour:
		return sign + two(d, time.Minute, "min", time.Second, "s")
	case d < day:
		return sign + two(d, time.Hour, "h", time.Minute, "min")
	case d < 1000*day:
		return sign + two(d, day, "d", time.Hour, "h")
	default:
		return fmt.Sprintf("%s%d y", sign, d/(365*day))
	}
}

// two formats d in a large and a small unit. It omits the small unit if it is zero.
func two(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// Bytes formats a number of bytes with a decimal unit and two or three digits.
func Bytes(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	// A value from 999.5 on would be rounded to four digits, and a value from 9.95 on to 10.0.
	value, unit := float64(n), -1
	for value >= 999.5 && unit < 4 {
		value /= 1000
		unit++
	}
	digits := 0
	if value < 9.95 {
		digits = 1
	}
	return strconv.FormatFloat(value, 'f', digits, 64) + " " + []string{"kB", "MB", "GB", "TB", "PB"}[unit]
}

// Count formats a number with a comma between groups of three digits.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(digits) - 3; i > first; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Time formats t in UTC, to the second. It returns "-" for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}

// Relative returns t relative to now, such as "3 min ago" or "in 3 min".
func Relative(t, now time.Time) string {
	if t.After(now) {
		return "in " + Age(t.Sub(now))
	}
	return Age(now.Sub(t)) + " ago"
}

// AtLeast formats n, the result of a query that stops counting at the limit in the parameter most.
func AtLeast(n, most int64) string {
	if n >= most {
		return Count(n) + " or more"
	}
	return Count(n)
}

// Clipped cuts text after limit characters, and then adds an ellipsis.
func Clipped(text string, limit int) string {
	for at := range text {
		if limit--; limit < 0 {
			return text[:at] + "…"
		}
	}
	return text
}
