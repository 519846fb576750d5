package purge

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/internal/txn"
)

// ended is the error with which a sweep stops without a failure, for example because it has
// finished.
type ended Reason

func (e ended) Error() string { return "purge: the sweep has ended: " + string(e) }

// retryable reports whether the sweep may continue after err. It may continue after a COMMIT with
// an unknown outcome, because it reads its position from idem.sweeps again.
func retryable(err error) bool {
	var unknown *txn.UnknownError
	return txn.Transient(err) || errors.As(err, &unknown) || errors.Is(err, context.DeadlineExceeded)
}

// tookTooLong reports whether the server canceled a statement, as it does after workLimit.
func tookTooLong(err error) bool { return txn.HasCode(err, "57014") }

// hint adds to err what the operator can do about it.
func hint(err error) error {
	switch {
	case txn.HasCode(err, "42P01", "3F000", "42703"):
		return fmt.Errorf("purge: the schema idem is missing or out of date; run the migrations of package migrations: %w", err)
	case txn.HasCode(err, "42501"):
		return fmt.Errorf("purge: the role lacks a privilege; it needs SELECT, UPDATE and DELETE on each swept table and its partitions, and SELECT, INSERT and UPDATE on idem.sweeps: %w", err)
	case txn.ReadOnly(err):
		return fmt.Errorf("purge: the connection is read-only (a replica?); connect to the primary: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("purge: the server has not answered within %v (is the table locked?): %w", answerLimit, err)
	}
	return fmt.Errorf("purge: %w", err)
}
