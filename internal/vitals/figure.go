package vitals

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// Quality says what a figure is worth.
type Quality string

// The qualities.
const (
	Exact    Quality = "exact"
	Estimate Quality = "estimate" // Note says what it rests on
	Unknown  Quality = "unknown"  // Note says why
)

// Figure is a number with what it is worth. The value of one that is unknown is zero.
type Figure[T any] struct {
	Value   T       `json:"value"`
	Quality Quality `json:"quality"`
	Note    string  `json:"note,omitempty"`
}

// Known reports whether there is a value.
func (f Figure[T]) Known() bool { return f.Quality == Exact || f.Quality == Estimate }

func exact[T any](value T) Figure[T] { return Figure[T]{Value: value, Quality: Exact} }

func estimate[T any](value T, note string) Figure[T] {
	return Figure[T]{Value: value, Quality: Estimate, Note: note}
}

func unknown[T any](note string) Figure[T] { return Figure[T]{Quality: Unknown, Note: note} }

// unread makes a figure of an error that says that the role may not read these tables, or that there are none. Any other error is that of the reader.
func unread[T any](err error, tables, none string) (Figure[T], error) {
	var refused *pgconn.PgError
	switch errors.As(err, &refused); {
	case refused == nil:
	case refused.Code == "42501":
		return unknown[T]("this role may not read " + tables), nil
	case refused.Code == "42P01", refused.Code == "42703":
		return unknown[T](none + ": run the migrations of package migrations"), nil
	}
	return Figure[T]{}, err
}
