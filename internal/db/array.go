package db

import (
	"strconv"
	"strings"
)

var inArray = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// array writes texts as an array of Postgres.
func array(texts []string) string {
	var b strings.Builder
	begin := byte('{')
	for _, text := range texts {
		appendElement(&b, begin, text)
		begin = ','
	}
	return endArray(&b)
}

// appendElement writes a text as an element, behind the brace or the comma that goes ahead of it.
func appendElement(b *strings.Builder, begin byte, text string) {
	b.WriteByte(begin)
	b.WriteByte('"')
	if strings.ContainsAny(text, `\"`) {
		text = inArray.Replace(text)
	}
	b.WriteString(text)
	b.WriteByte('"')
}

func endArray(b *strings.Builder) string {
	if b.Len() == 0 {
		return "{}"
	}
	b.WriteByte('}')
	return b.String()
}

// numbers writes numbers as an array of Postgres.
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
