// Package page formats output for people: tables, pairs of names and values, quantities and colors.
package page

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Page writes text to a writer. It keeps the first error of a write, after which it writes no more.
// Call Err at the end.
type Page struct {
	out    io.Writer
	colour bool
	err    error
}

// New returns a page that writes to out, with colors if colour is set.
func New(out io.Writer, colour bool) *Page { return &Page{out: out, colour: colour} }

// Err returns the first error of a write.
func (p *Page) Err() error { return p.err }

// Printf writes formatted text. Text from other sources, such as the database, has to go through
// [Safe] first.
func (p *Page) Printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format, args...)
	}
}

// Pair is a line of Pairs.
type Pair struct{ Name, Value string }

// Pairs writes one line per pair, with the values aligned.
func (p *Page) Pairs(pairs []Pair) {
	width := 0
	for _, pair := range pairs {
		width = max(width, ansi.StringWidth(pair.Name))
	}
	for _, pair := range pairs {
		p.Printf("%s%s  %s\n", p.Dim(pair.Name), gap(pair.Name, width), pair.Value)
	}
}

// gap returns the spaces that fill text up to width.
func gap(text string, width int) string {
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}
