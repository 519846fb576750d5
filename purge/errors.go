package purge

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/internal/txn"
)

// ended is the error of a sweep that has ended without having failed.
type ended Reason

func (e ended) Error() string { return "purge: the sweep has ended: " + string(e) }

// passes reports whether an error may be gone the next time. The outcome of a COMMIT without an answer, idem.sweeps tells.
func passes(err error) bool {
	var unknown *txn.UnknownError
	return txn.Transient(err) || errors.As(err, &unknown) || errors.Is(err, context.DeadlineExceeded)
}

// tookTooLong reports whether the server has cancelled a statement, as it does after workLimit.
func tookTooLong(err error) bool { return txn.HasCode(err, "57014") }

// hint adds to an error what its reader can do about it.
func hint(err error) error {
	switch {
	case txn.HasCode(err, "42P01", "3F000", "42703"):
		return fmt.Errorf("purge: the schema is missing or out of date, run the migrations of package migrations: %w", err)
	case txn.HasCode(err, "42501"):
		return fmt.Errorf("purge: the role needs SELECT, UPDATE and DELETE on what is swept, on each of its partitions if it has any, and SELECT, INSERT and UPDATE on idem.sweeps: %w", err)
	case txn.ReadOnly(err):
		return fmt.Errorf("purge: this connection is read-only (a replica?), a purge works on the primary: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("purge: the server has not answered within %v, is the table locked? %w", answerLimit, err)
	}
	return fmt.Errorf("purge: %w", err)
}
