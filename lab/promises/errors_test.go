package promises_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
)

func TestErrors_HaveACauseAndAreRetryableOrNot(t *testing.T) {
	t.Parallel()
	state := func(code string) error { return &pgconn.PgError{Code: code} }
	for _, test := range []struct {
		err       error
		retryable bool
		cause     idem.Cause
	}{
		{nil, false, idem.CauseNone},
		{&idem.InProgressError{}, true, idem.CauseInProgress},
		{&idem.OutcomeUnknownError{Err: io.EOF}, true, idem.CauseOutcomeUnknown},
		{&idem.OutcomeUnknownError{Err: state("42P01")}, true, idem.CauseOutcomeUnknown},
		{&idem.OutcomeUnknownError{Err: context.Canceled}, true, idem.CauseOutcomeUnknown},
		{&idem.PoolExhaustedError{}, true, idem.CausePoolExhausted},
		{&idem.UnreadableError{Err: context.DeadlineExceeded}, false, idem.CauseUnreadable},
		{&idem.MismatchError{}, false, idem.CauseMismatch},
		{idem.ErrInvalidKey, false, idem.CauseInvalid},
		{idem.ErrInvalidResponse, false, idem.CauseInvalid},
		{&idem.ResponseTooLargeError{}, false, idem.CauseTooLarge},
		{idem.ErrTxAborted, false, idem.CauseTxAborted},
		{errors.Join(idem.ErrTxAborted, state("25P04")), false, idem.CauseTooSlow},
		{idem.ErrTxEnded, false, idem.CauseTxEnded},
		{idem.Reject(idem.Response{}), false, idem.CauseOther},
		{errBusiness, false, idem.CauseOther},
		{pgx.ErrNoRows, false, idem.CauseOther},
		{context.Canceled, false, idem.CauseCanceled},
		{context.DeadlineExceeded, false, idem.CauseDeadline},
		{state("40P01"), true, idem.CauseConflict},
		{state("55P03"), true, idem.CauseLockTimeout},
		{state("25P03"), false, idem.CauseTooSlow},
		{state("25006"), true, idem.CauseReadOnly},
		{state("53300"), true, idem.CauseOutOfResources},
		{state("57P01"), true, idem.CauseConnectionLost},
		{state("23505"), false, idem.CausePostgres},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, true, idem.CauseConnectionLost},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, true, idem.CauseConnectionLost},
		{io.ErrUnexpectedEOF, true, idem.CauseConnectionLost},
		{net.ErrClosed, true, idem.CauseConnectionLost},
		{pgconn.ErrConnClosed, true, idem.CauseConnectionLost},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, true, idem.CauseConnectionLost},
	} {
		if got := idem.CauseOf(test.err); got != test.cause {
			t.Errorf("CauseOf(%v) = %q, want %q", test.err, got, test.cause)
		}
		for _, err := range []error{test.err, fmt.Errorf("while ordering: %w", test.err), errors.Join(errBusiness, test.err)} {
			if got := idem.Retryable(err); got != test.retryable {
				t.Errorf("Retryable(%v) = %v", err, got)
			}
		}
	}
}

func TestRetryable_KnowsTheStatesOfTheServer(t *testing.T) {
	t.Parallel()
	for codes, want := range map[string]bool{
		"40001 40P01":                   true,  // serialization failure, deadlock
		"55P03":                         true,  // lock not available
		"57P01 57P02 57P03 57P05":       true,  // shutdown, startup, idle session timeout
		"25P03 25P04":                   false, // fn was too slow, and would be too slow again
		"25006":                         true,  // read-only transaction: a demoted primary
		"53000 53100 53200 53300 53400": true,  // out of some resource
		"08000 08001 08003 08004 08006 08007 08P01": true,                                                                   // connection
		"00000 01000 02000 0A000":                   false,                                                                  // no errors, or final ones
		"21000 22001 22003 22012 22021 22P02":       false,                                                                  // data
		"23000 23502 23503 23505 23514 23P01":       false,                                                                  // constraints
		"25001 25P01 25P02":                         false,                                                                  // transaction states
		"26000 28000 28P01 2BP01 34000 3B001 3D000": false,                                                                  // names and permissions
		"40000 40002 42501 42601 42703 42P01":       false,                                                                  // the statement, the schema
		"54000 55000 55006 57014 57P04":             false,                                                                  // limits, cancelled by a timeout of the server, dropped
		"P0001 P0002 XX000 XX001 XX002":             false,                                                                  // errors of the caller, internal errors of the server
		"":                                          false, "4": false, "08": false, "53": false, "5": false, "0800": false, // not states at all
	} {
		for code := range strings.SplitSeq(codes, " ") {
			for _, severity := range []string{"ERROR", "FATAL"} {
				err := fmt.Errorf("wrapped: %w", &pgconn.PgError{Severity: severity, SeverityUnlocalized: severity, Code: code})
				if got := idem.Retryable(err); got != want {
					t.Errorf("Retryable(%s %q) = %v", severity, code, got)
				}
			}
		}
	}
}

func TestDo_ReturnsTheErrorOfFnItself(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	for name, own := range map[string]error{
		"plain":     errBusiness,
		"joined":    errors.Join(errBusiness, io.EOF),
		"SQL":       &pgconn.PgError{Code: "23505"},
		"canceled":  context.Canceled,
		"mismatch":  idem.ErrMismatch,
		"unknown":   &idem.OutcomeUnknownError{Err: io.EOF},
		"tx closed": pgx.ErrTxClosed,
		"57P01":     &pgconn.PgError{Severity: "FATAL", Code: "57P01"},
		"stale":     &pgconn.PgError{Code: "26000"},
	} {
		for outerName, outer := range outers {
			before := l.runs.Load()
			if _, err := outer(ctx, l, name, l.failing(name, own)); err != own || l.runs.Load() != before+1 {
				t.Errorf("%s, %s: err = %v after %d runs, want fn's own after one", outerName, name, err, l.runs.Load()-before)
			}
			l.wantNone(name)
		}
	}
}

func TestDo_UnreachableServerIsRetryable(t *testing.T) {
	t.Parallel()
	_, err := idemDo(context.Background(), nowhere(t), scope, "k", hashA, neverCalled(t))
	var refused *pgconn.ConnectError
	if !idem.Retryable(err) || !errors.As(err, &refused) {
		t.Errorf("err = %v, want a *pgconn.ConnectError that is retryable", err)
	}
}
