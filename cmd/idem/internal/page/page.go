// Package page formats output for a terminal: tables, name-value pairs and colors.
package page

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// Page writes text for a person. After the first write error it writes nothing more; Err returns
// that error.
type Page struct {
	out    io.Writer
	colour bool
	err    error
}

// New returns a page that writes to out, with ANSI colors if colour is set.
func New(out io.Writer, colour bool) *Page { return &Page{out: out, colour: colour} }

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
