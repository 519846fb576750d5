// Package page writes for people: tables, pairs and colours.
package page

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Page is what a person reads. Errors of writing are kept for the end: Err.
type Page struct {
	out    io.Writer
	colour bool
	err    error
}

// New returns a page that writes to out.
func New(out io.Writer, colour bool) *Page { return &Page{out: out, colour: colour} }

// Err is the first error of writing.
func (p *Page) Err() error { return p.err }

// Printf writes formatted text. What comes from strangers has to go through [Safe] first.
func (p *Page) Printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format, args...)
	}
}

// Pair is a name and what is to be said of it.
type Pair struct{ Name, Value string }

// Pairs writes names and values below one another.
func (p *Page) Pairs(pairs []Pair) {
	width := 0
	for _, pair := range pairs {
		width = max(width, ansi.StringWidth(pair.Name))
	}
	for _, pair := range pairs {
		p.Printf("%s%s  %s\n", p.Dim(pair.Name), gap(pair.Name, width), pair.Value)
	}
}

func gap(text string, width int) string {
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}
