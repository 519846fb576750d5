package deadletter

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
)

// MaxReason is the maximum number of bytes of a stored error text.
const MaxReason = 1000

// ClassOf returns the class of an error, which is fit for a metric label. An error can name its
// class by a method Class() string. Otherwise the class is the SQLSTATE of a Postgres error, the
// type of the first error in the chain that is not one of the packages errors and fmt, or "error".
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

// ReasonOf returns the text of an error as it is stored: printable, and at most MaxReason bytes
// long.
func ReasonOf(err error) string {
	if err == nil {
		return ""
	}
	return Printable(err.Error(), MaxReason)
}

// Printable returns a text as valid UTF-8 without NUL, truncated to limit bytes.
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
