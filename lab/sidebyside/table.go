package sidebyside

import "strings"

// Table is one of Markdown. All columns but the first few hold figures.
func Table(words int, header []string, rows [][]string) string {
	var text strings.Builder
	line := func(cells []string) { text.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(header)
	rule := make([]string, len(header))
	for i := range rule {
		rule[i] = "--:"
		if i < words {
			rule[i] = "---"
		}
	}
	line(rule)
	for _, row := range rows {
		line(row)
	}
	return text.String()
}

// Bar is something that has to be so.
type Bar struct {
	What, Got string
	Met       bool
}

// BarTable shows which are met.
func BarTable(bars []Bar) string {
	var rows [][]string
	for _, b := range bars {
		verdict := "met"
		if !b.Met {
			verdict = "**missed**"
		}
		rows = append(rows, []string{b.What, b.Got, verdict})
	}
	return Table(3, []string{"bar", "measured", "verdict"}, rows)
}
