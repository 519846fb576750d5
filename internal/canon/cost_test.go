package canon_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/canon"
)

// shapes returns documents of about this size. Each is costly for a reader that repeats some step.
func shapes(size int) map[string]string {
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	members := func(format string) string {
		var s strings.Builder
		for i := 0; s.Len() < size; i++ {
			fmt.Fprintf(&s, format, (i*7919)%1000003) // out of order, none twice
		}
		return "{" + s.String() + `"":0}`
	}
	return map[string]string{
		"array":           "[" + fill("0,") + "0]",
		"arrays":          "[" + fill("[],") + "0]",
		"objects":         "[" + fill("{},") + "0]",
		"brackets":        fill("["),
		"members":         members(`"%d":0,`),
		"long names":      members(`"` + strings.Repeat("x", 1000) + `%d":0,`),
		"one name":        "{" + fill(`"a":0,`) + `"a":0}`,
		"deep and moved":  strings.Repeat(`{"b":`, 256) + `"` + fill("x") + `"` + strings.Repeat(`,"a":0}`, 256),
		"digits":          fill("7"),
		"zeros":           "1" + fill("0"),
		"fraction":        "0." + fill("0") + "1",
		"exponent":        "1e" + fill("9"),
		"exponent zeros":  "1e" + fill("0") + "1",
		"small exponent":  "[" + fill("1e-999999999999,") + "0]",
		"string":          `"` + fill("x") + `"`,
		"escapes":         `"` + fill(`\u001f`) + `"`,
		"surrogate pairs": `"` + fill(`\ud83d\ude00`) + `"`,
		"unclosed string": `"` + fill("é"),
		"white space":     fill(" "),
	}
}

// took returns how long it takes to read or refuse a document.
func took(doc string, selected canon.Selection) time.Duration {
	start := time.Now()
	_, _ = canon.Append(nil, []byte(doc), selected)
	return time.Since(start)
}

// Clients choose the shape of a document. No shape may take 100 times as long as one plain string
// of the same size. A quadratic cost takes thousands of times as long. Both are measured side by
// side, and a shape fails only if it is slow every time, so that other load on the machine does not
// matter.
func TestAppend_CostIsLinearForAllShapes(t *testing.T) {
	const size, limit, tries = 1 << 18, 500, 3
	plain, all := `"`+strings.Repeat("x", size)+`"`, whole(t)
	parts := selection(t, []string{"/0", "/1/a", "/131071", "/b"}, []string{"/7", "/77", "/b/b", "/a/b/c"})
	for name, doc := range shapes(size) {
		for _, selected := range []canon.Selection{all, parts} {
			var ratio float64
			for try := range tries {
				ratio = float64(took(doc, selected)) / float64(took(plain, all))
				if t.Logf("%s: %.1f", name, ratio); ratio < limit {
					break
				}
				if try == tries-1 {
					t.Fatalf("%s: %.0f times as long as a plain string, the limit is %d", name, ratio, limit)
				}
			}
		}
	}
}
