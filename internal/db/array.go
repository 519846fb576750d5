package db

import (
	"strconv"
	"strings"
)

var inArray = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// array returns the Postgres array literal of texts.
func array(texts []string) string {
	var b strings.Builder
	begin := byte('{')
	for _, text := range texts {
		appendElement(&b, begin, text)
		begin = ','
	}
	return endArray(&b)
}

// appendElement writes begin, an opening brace or a comma, and then text as a quoted element.
func appendElement(b *strings.Builder, begin byte, text string) {
	b.WriteByte(begin)
	b.WriteByte('"')
	if strings.ContainsAny(text, `\"`) {
		text = inArray.Replace(text)
	}
	b.WriteString(text)
	b.WriteByte('"')
}

// endArray closes the array in b and returns it. An array without elements is "{}".
func endArray(b *strings.Builder) string {
	if b.Len() == 0 {
		return "{}"
	}
	b.WriteByte('}')
	return b.String()
}

// numbers returns the Postgres array literal of a list of numbers.
func numbers[N int | int64](list []N) string {
	b := []byte{'{'}
	for i, n := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(append(b, '}'))
}
