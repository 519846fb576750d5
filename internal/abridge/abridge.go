// Package abridge has the one form in which errors, logs, the tool and its page show the name of something that gives access
// to it, or that may be long: its beginning and its length in bytes, as in 7f3c…(36).
package abridge

import (
	"slices"
	"strconv"
	"unicode/utf8"
)

// Key returns as much of a key as a log may carry: enough to find it again, too little to use it.
func Key(key string) string { return beginning(key, 4, 16) }

// ID returns as much of the id of a message: it gives access to nothing, and often begins like the ids of the others.
func ID(id string) string { return beginning(id, 8, 24) }

// beginning returns the first bytes of a text that has at least so many, and its length. What could steer a terminal is written
// as an escape, because the text comes from strangers.
func beginning(text string, shown, least int) string {
	short := make([]byte, 0, 64)
	if len(text) >= least {
		for shown > 0 && !utf8.RuneStart(text[shown]) {
			shown--
		}
		short = strconv.AppendQuote(short, text[:shown])
		short = slices.Delete(short[:len(short)-1], 0, 1)
	}
	short = strconv.AppendInt(append(short, "…("...), int64(len(text)), 10)
	return string(append(short, ')'))
}
