package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

// showSpread shows a median with the least and the greatest, all as multiples.
func showSpread(s measure.Spread) string {
	if math.IsNaN(s.Median) {
		return "-"
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Median, s.Min, s.Max)
}

// micros shows microseconds, with a decimal where that is worth reading.
func micros(us float64) string {
	if us < 100 {
		return fmt.Sprintf("%.1f", us)
	}
	return result.Grouped(us)
}

func spellBusiness(business string) string {
	if business == result.Insert {
		return "one insert"
	}
	return business
}

// table writes a Markdown table. The first column is for names, the others are for figures.
func table(header []string, rows [][]string) string {
	if len(rows) == 0 {
		return "Not measured in this run.\n"
	}
	var t strings.Builder
	line := func(cells []string) { t.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(header)
	rule := make([]string, len(header))
	for i := range rule {
		rule[i] = "---"
		if i > 0 {
			rule[i] = "--:"
		}
	}
	line(rule)
	for _, row := range rows {
		line(row)
	}
	return t.String()
}

// texts is a table without figures.
func texts(header []string, rows [][]string) string {
	return strings.Replace(table(header, rows), "--:", "---", -1)
}
