package report

import (
	"fmt"
	"html"
	"regexp"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
)

// lettering is a text as it stands in an SVG of the library.
var lettering = regexp.MustCompile(`<text ([^>]*font-family:)Liberation Sans(;[^>]*font-size:(\d+)px[^>]*)>([^<]*)</text>`)

// fit makes every text as wide as it was when its place was found, whatever font the reader has: Arial and Helvetica have
// the same widths, others are squeezed.
func fit(svg []byte) []byte {
	return lettering.ReplaceAllFunc(svg, func(text []byte) []byte {
		part := lettering.FindSubmatch(text)
		size, _ := strconv.ParseFloat(string(part[3]), 64)
		letters := font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans", Size: font.Length(size)}
		face := font.DefaultCache.Lookup(letters, letters.Size)
		width := face.Width(html.UnescapeString(string(part[4])))
		return fmt.Appendf(nil, `<text textLength="%.4g" lengthAdjust="spacingAndGlyphs" %sLiberation Sans,Arial,Helvetica,sans-serif%s>%s</text>`,
			width.Points(), part[1], part[2], part[4])
	})
}
