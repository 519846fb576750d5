package stats

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Quality says how reliable a Figure is.
type Quality string

const (
	Exact    Quality = "exact"
	Estimate Quality = "estimate" // Note says what the estimate is based on
	Unknown  Quality = "unknown"  // Value is zero, and Note says why
)

// Figure is a value and its quality.
type Figure[T any] struct {
	Value   T
	Quality Quality
	Note    string // empty if the value is exact
}

// Known reports whether f has a value.
func (f Figure[T]) Known() bool { return f.Quality == Exact || f.Quality == Estimate }

func exact[T any](value T) Figure[T] { return Figure[T]{Value: value, Quality: Exact} }

func estimate[T any](value T, note string) Figure[T] {
	return Figure[T]{Value: value, Quality: Estimate, Note: note}
}

func unknown[T any](note string) Figure[T] { return Figure[T]{Quality: Unknown, Note: note} }

// unknownBecause returns an unknown figure if err says that the role may not read the tables, that
// they do not exist, or that such an error has aborted the transaction. It returns any other error
// as it is.
func unknownBecause[T any](err error, tables string) (Figure[T], error) {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch pgErr.Code {
		case "42501": // insufficient_privilege
			return unknown[T]("this role may not read " + tables), nil
		case "25P02": // in_failed_sql_transaction
			return unknown[T]("an earlier statement of Read was refused, which has aborted the transaction"), nil
		case "42P01", "42703": // undefined_table, undefined_column
			return unknown[T](tables + " is missing or outdated: run the migrations of package migrations"), nil
		}
	}
	return Figure[T]{}, err
}

// timeOf converts a column with microseconds since 1970 to a time. It returns the zero time for 0.
func timeOf(microseconds int64) time.Time {
	if microseconds == 0 {
		return time.Time{}
	}
	return time.UnixMicro(microseconds).UTC()
}

func durationOf(microseconds int64) time.Duration {
	return time.Duration(microseconds) * time.Microsecond
}
