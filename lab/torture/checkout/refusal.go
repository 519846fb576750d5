package checkout

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/torture/journal"
)

// The errors with which card A is declined. There is one for each way in which programs recognize
// errors: identity, an Is method, an interface, a type, and the fields of a *pgconn.PgError.

var errNoFunds = errors.New("no funds")

// codeError is an error that matches by its code only.
type codeError struct {
	Code int
	Text string
}

func (e *codeError) Error() string { return fmt.Sprint(e.Text, " ", e.Code) }

// Is reports whether target is a codeError with the same code.
func (e *codeError) Is(target error) bool {
	other, ok := target.(*codeError)
	return ok && other.Code == e.Code
}

// decliner is an interface by which a program recognizes a declined card.
type decliner interface {
	error
	Declined() bool
}

// softDecline implements decliner.
type softDecline struct{ Again bool }

func (e *softDecline) Error() string  { return fmt.Sprint("declined, may be tried again: ", e.Again) }
func (e *softDecline) Declined() bool { return true }

// opaqueDecline has no exported fields, so only its type identifies it.
type opaqueDecline struct{ reason int }

func (e *opaqueDecline) Error() string { return "declined, for a reason of its own" }

// refusalOf returns an error of the given type, with which card A is declined.
func refusalOf(r journal.Refusal) error {
	switch r {
	case journal.Wrapped:
		return fmt.Errorf("card A: %w", errors.Join(errNoFunds, errors.New("and it has expired")))
	case journal.CustomIs:
		return &codeError{51, "declined by its issuer, with code"}
	case journal.Interface:
		return &softDecline{true}
	case journal.Opaque:
		return &opaqueDecline{7}
	case journal.Errno:
		return fmt.Errorf("card A: %w", syscall.ECONNREFUSED)
	case journal.PgError:
		return &pgconn.PgError{Severity: "ERROR", Code: "23514", Message: "no funds", ConstraintName: "funds"}
	}
	return errNoFunds
}

// says reports whether a program recognizes in err that card A was declined.
func says(r journal.Refusal, err error) bool {
	switch r {
	case journal.CustomIs:
		return errors.Is(err, &codeError{Code: 51})
	case journal.Interface:
		found, ok := errors.AsType[decliner](err)
		return ok && found.Declined()
	case journal.Opaque:
		_, ok := errors.AsType[*opaqueDecline](err)
		return ok
	case journal.Errno:
		return errors.Is(err, syscall.ECONNREFUSED)
	case journal.PgError:
		found, ok := errors.AsType[*pgconn.PgError](err)
		return ok && found.Code == "23514" && found.ConstraintName == "funds"
	}
	return errors.Is(err, errNoFunds)
}
