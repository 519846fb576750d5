package deadletter

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
)

// MaxReason is how many bytes of an error are kept.
const MaxReason = 1000

// ClassOf names a kind of errors: the SQLSTATE of one of Postgres, the type of one that has a type of its own, or "error". An
// error may name its own class by a method Class() string. It is fit to be a label of a metric.
func ClassOf(err error) string {
	var classed interface{ Class() string }
	if errors.As(err, &classed) {
		return Printable(classed.Class(), 64)
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		name := fmt.Sprintf("%T", inner)
		if !strings.HasPrefix(name, "*errors.") && !strings.HasPrefix(name, "*fmt.") {
			return Printable(name, 64)
		}
	}
	return "error"
}

// ReasonOf returns the text of an error as it is kept: one that a database takes, and not too long.
func ReasonOf(err error) string {
	if err == nil {
		return ""
	}
	return Printable(err.Error(), MaxReason)
}

// Printable returns a text as valid UTF-8 without NUL, cut off at a limit of bytes.
func Printable(text string, limit int) string {
	if len(text) > limit {
		cut := limit
		for cut > limit-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
