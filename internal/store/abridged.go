package store

import (
	"strconv"
	"unicode/utf8"
)

// Abridged returns as much of a key as a log may carry: enough to find it again, too little to use it.
func Abridged(key string) string {
	const shown = 4
	text := append(make([]byte, 0, 64), "key "...)
	if len(key) >= 4*shown {
		end := shown
		for !utf8.RuneStart(key[end]) {
			end--
		}
		text = append(strconv.AppendQuote(text, key[:end]), "… "...)
	}
	text = strconv.AppendInt(append(text, "of "...), int64(len(key)), 10)
	return string(append(text, " bytes"...))
}
