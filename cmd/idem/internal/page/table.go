package page

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

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
// others are indented by the width of lead.
func Wrap(text, lead string, width int) string {
	indent := ansi.StringWidth(lead)
	lines := strings.Split(ansi.Wordwrap(text, max(20, width-indent), ""), "\n")
	return lead + strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}
