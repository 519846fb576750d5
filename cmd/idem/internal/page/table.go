package page

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Column describes a column of Table.
type Column struct {
	Name  string
	Right bool // align to the right, as for numbers
}

// Table writes the names of the columns and one line per row. Each row has one cell per column.
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

// row writes one line of a table. Padding is outside of the painted text, and the last column gets
// none.
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

// Wrap breaks text into lines of at most width columns, but at least 20. The first line starts with
// lead, and the others are indented by its width.
func Wrap(text, lead string, width int) string {
	indent := ansi.StringWidth(lead)
	lines := strings.Split(ansi.Wordwrap(text, max(20, width-indent), ""), "\n")
	return lead + strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}
