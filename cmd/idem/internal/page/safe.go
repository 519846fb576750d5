package page

import (
	"strings"

	"github.com/idem-go/idem/internal/display"
)

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
