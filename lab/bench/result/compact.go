package result

import "regexp"

// innermost are objects and arrays that contain no further ones.
var innermost = regexp.MustCompile(`[\[{][^\[\]{}"]*(?:"[^"]*"[^\[\]{}"]*)*[\]}]`)

var breaks = regexp.MustCompile(`\n\s*`)

// compact puts what contains nothing else on a line of its own.
func compact(text []byte) []byte {
	return innermost.ReplaceAllFunc(text, func(b []byte) []byte { return breaks.ReplaceAll(b, nil) })
}
