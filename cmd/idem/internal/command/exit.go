package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/cmd/idem/internal/address"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// Exit codes. docs/cli.md has the same list.
const (
	exitDone     = 0 // done, or nothing found
	exitFailed   = 1 // failed
	exitUsage    = 2 // invalid arguments
	exitFound    = 3 // doctor, verify, stuck and migrate status found something
	exitNoRecord = 4 // no such record, operation, dead letter or relay
	exitRefused  = 5 // nothing was changed: not confirmed, or the state does not allow it

	// exitUnknown means that a command found nothing but could not check everything, or that a
	// standby was asked for what only the primary knows.
	exitUnknown = 6

	exitSignal = 128 // plus the number of the signal
)

// errFound ends a command that has printed what it found. The exit code is exitFound.
var errFound = errors.New("found")

// errUnknown ends a command that found nothing, but could not check everything. The command has
// printed what it could not check.
var errUnknown = errors.New("nothing was found, but not everything could be checked")

// exitError is an error with its exit code.
type exitError struct {
	code int
	text string
}

func (e exitError) Error() string { return e.text }

// noRecord returns the error of a command whose arguments select no existing object.
func noRecord(format string, args ...any) error {
	return exitError{exitNoRecord, fmt.Sprintf(format, args...)}
}

// unchanged returns the error of a command that changed nothing, because the person did not
// confirm, or because the state of the object does not allow the change.
func unchanged(format string, args ...any) error {
	return exitError{exitRefused, fmt.Sprintf(format, args...)}
}

// usage returns the error for invalid arguments.
func usage(format string, args ...any) error {
	return exitError{exitUsage, fmt.Sprintf(format, args...)}
}

// finish prints the error in one line, and returns the exit code.
//
// The order of the cases matters. An interrupt can end a command in the middle of a COMMIT. Then
// finish reports the unknown outcome, and not the interrupt. Any other error after an interrupt is
// a consequence of the interrupt, such as a canceled statement, so finish reports the interrupt.
func finish(ctx context.Context, w World, err error) int {
	var parse *kong.ParseError
	var interrupted Interrupted
	var known exitError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errFound):
		return exitFound
	case errors.Is(err, errUnknown), errors.Is(err, errStandby):
		printError(w, err.Error())
		return exitUnknown
	case errors.Is(err, record.ErrUnknown): // comes before the interrupt, which may have caused it
		printError(w, err.Error())
		return exitFailed
	case errors.As(context.Cause(ctx), &interrupted), errors.As(err, &interrupted):
		printError(w, interrupted.Error())
		return exitSignal + int(interrupted.Signal)
	case errors.As(err, &parse):
		printError(w, parse.Error()+"; see "+helpOf(parse))
		return exitUsage
	case errors.As(err, &known):
		printError(w, err.Error())
		return known.code
	}
	printError(w, explained(err).Error())
	return exitFailed
}

// printError writes text to standard error, in one line with the name of the program. It removes
// the prefix "idem: " from an error of the library, because the prefix would appear twice.
func printError(w World, text string) {
	text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), "idem: ")
	fmt.Fprintf(w.Stderr, "idem: %s\n", page.Safe(text))
}

// helpOf returns the command line that prints the help of the command whose parsing failed.
func helpOf(parse *kong.ParseError) string {
	if command := parse.Context.Command(); command != "" {
		return "idem " + strings.Fields(command)[0] + " --help"
	}
	return "idem --help"
}

// explained adds what to do about an error of the database. It returns other errors unchanged,
// since the errors of the library already say what to do.
func explained(err error) error {
	if refused := address.Refused(err); refused != err {
		return refused
	}
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return err
	}
	if remedy := record.Remedy(server.Code); remedy != "" {
		return fmt.Errorf("%s (SQLSTATE %s); %s", server.Message, server.Code, remedy)
	}
	return fmt.Errorf("%s (SQLSTATE %s)", server.Message, server.Code)
}

// errStandby ends a command that printed what a standby knows, although a complete answer needs the
// primary.
var errStandby = errors.New("a standby does not have the locks, sessions and processes of the primary")

// standbyTimeout limits the query that asks whether the server is a standby.
const standbyTimeout = 2 * time.Second

// needsPrimary has the commands whose answer depends on locks or sessions, which a standby does not
// have. doctor is not listed, because it has a check for standbys.
var needsPrimary = map[string]bool{"stuck": true, "explain": true, "stats": true, "outbox stats": true, "operation list": true, "operation show": true}

// checkStandby prints a note if the command read from a standby, whose data is only as new as the
// last replayed change. If the command succeeded but its answer depends on locks or sessions,
// checkStandby returns errStandby.
//
// It runs after the command, so that its query does not delay the result of a command on a primary.
// If the command failed, checkStandby returns that error without a note. If it cannot find out
// whether the server is a standby, it prints nothing.
func (s *session) checkStandby(err error) error {
	if s.pool == nil || err != nil && !errors.Is(err, errFound) && !errors.Is(err, errUnknown) {
		return err
	}
	var standby bool
	var behind float64
	ctx, cancel := context.WithTimeout(s.ctx, standbyTimeout)
	defer cancel()
	read := s.pool.QueryRow(ctx, `SELECT pg_catalog.pg_is_in_recovery(),
		coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()), 0)::pg_catalog.float8`)
	if read.Scan(&standby, &behind) != nil || !standby {
		return err
	}
	age := page.Age(time.Duration(behind * float64(time.Second)))
	if err == nil && needsPrimary[s.command] {
		return fmt.Errorf("this is a standby (last change: %s ago), and %w: ask the primary", age, errStandby)
	}
	printError(s.World, "this is a standby (last change: "+age+" ago)")
	return err
}
