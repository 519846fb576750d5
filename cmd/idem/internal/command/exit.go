package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/cmd/idem/internal/address"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// Exit codes. README.md has the same list.
const (
	exitDone     = 0 // done, or nothing found
	exitFailed   = 1 // the command failed
	exitUsage    = 2 // invalid arguments
	exitFound    = 3 // doctor, verify, stuck, migrate status and conform found something
	exitNoRecord = 4 // the record does not exist
	exitRefused  = 5 // nothing changed, because the user did not agree
	// doctor, verify or stuck found nothing but could not check everything, or a command asked a
	// standby for something that only the primary knows
	exitUnknown = 6
	exitSignal  = 128 // plus the signal number
)

// errFound is returned by a command that has printed its findings. It sets the exit code only.
var errFound = errors.New("found")

// errUnknown is returned by a command that found nothing and has printed what it could not check.
var errUnknown = errors.New("nothing was found, but not everything could be checked")

// noRecordError is returned if the record, operation or letter does not exist.
type noRecordError struct{ text string }

func (e noRecordError) Error() string { return e.text }

// refusedError is returned if a command has changed nothing because the user did not agree or the
// state does not allow the change.
type refusedError struct{ text string }

func (e refusedError) Error() string { return e.text }

// usageError is returned for arguments that contradict each other.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// finish prints err in one line, and returns the exit code.
func finish(ctx context.Context, w World, err error) int {
	var parse *kong.ParseError
	var interrupted Interrupted
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errFound):
		return exitFound
	case errors.Is(err, errUnknown), errors.Is(err, errStandby):
		say(w, err.Error())
		return exitUnknown
	case errors.Is(err, record.ErrUnknown): // comes before interruptions: the change may be committed
		say(w, err.Error())
		return exitFailed
	case errors.As(context.Cause(ctx), &interrupted), errors.As(err, &interrupted):
		say(w, interrupted.Error())
		return exitSignal + int(interrupted.Signal)
	case errors.As(err, &parse):
		say(w, parse.Error()+"; see "+helpOf(parse))
		return exitUsage
	case errors.As(err, new(usageError)):
		say(w, err.Error())
		return exitUsage
	case errors.As(err, new(noRecordError)):
		say(w, err.Error())
		return exitNoRecord
	case errors.As(err, new(refusedError)):
		say(w, err.Error())
		return exitRefused
	}
	say(w, explained(err).Error())
	return exitFailed
}

// say prints a message to standard error in one line.
func say(w World, text string) {
	text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), "idem: ") // errors of the library have this prefix already
	fmt.Fprintf(w.Stderr, "idem: %s\n", page.Safe(text))
}

func helpOf(parse *kong.ParseError) string {
	if command := parse.Context.Command(); command != "" {
		return "idem " + strings.Fields(command)[0] + " --help"
	}
	return "idem --help"
}

// explained adds a remedy to an error of the database.
func explained(err error) error {
	if refused := address.Refused(err); refused != err {
		return refused
	}
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return err
	}
	if remedy := remedyOf(server); remedy != "" {
		return fmt.Errorf("%s (SQLSTATE %s); %s", server.Message, server.Code, remedy)
	}
	return fmt.Errorf("%s (SQLSTATE %s)", server.Message, server.Code)
}

// remedyOf returns the remedy for a SQLSTATE, or "".
func remedyOf(err *pgconn.PgError) string {
	switch err.Code {
	case "42P01", "3F000", "42703":
		return "the schema of idem is missing or out of date here: run idem migrate up, or check the address"
	case "42501":
		return "this role may not: see what it lacks with idem doctor, or connect as another with -U; a change takes INSERT on idem.audit as well"
	case "57014":
		return "the statement took longer than --timeout allows: narrow it down with --scope, or raise --timeout"
	case "55P03":
		return "another session holds a lock on it: try again, or see who with idem stuck"
	case "25006":
		return "this is a standby or a read-only connection: connect to the primary"
	case "57P01", "57P02", "57P03":
		return "the server is going down or coming up: try again"
	}
	return ""
}
