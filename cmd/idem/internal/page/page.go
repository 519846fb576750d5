// Package page formats output for a terminal: tables, name-value pairs and colors.
package page

import (
	"fmt"
	"io"
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

// New returns a page that writes to out, with ANSI colors if color is set.
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

// Pairs writes one line for each pair, with the values aligned. A name may contain no colors,
// because Pairs dims it.
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
