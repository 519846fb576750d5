package page

import (
	"strings"

	"github.com/idem-go/idem/internal/display"
)

// Safe replaces the characters of text that could control a terminal, as display.Printable does.
func Safe(text string) string { return display.Printable(text) }

// SafeLines is Safe for text of several lines: it keeps line breaks and tabs.
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
