package deadletter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/display"
)

// MaxReason is the maximum number of bytes of a stored error text.
const MaxReason = 1000

// ClassOf returns the class of an error, which is fit for a metric label. If the error has a method
// Class() string, the class is its result. For a Postgres error the class is the SQLSTATE.
// Otherwise it is the type of the first error in the chain whose type is not from the packages
// errors and fmt. If there is no such type, the class is "error".
func ClassOf(err error) string {
	var classed interface{ Class() string }
	if errors.As(err, &classed) {
		return display.Storable(classed.Class(), 64)
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		name := fmt.Sprintf("%T", inner)
		if !strings.HasPrefix(name, "*errors.") && !strings.HasPrefix(name, "*fmt.") {
			return display.Storable(name, 64)
		}
	}
	return "error"
}

// ReasonOf returns the text of an error in the form that is stored: valid UTF-8 without NUL,
// truncated to MaxReason bytes.
func ReasonOf(err error) string {
	if err == nil {
		return ""
	}
	return display.Storable(err.Error(), MaxReason)
}
