package promises_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestRetryableTellsWhatMaySucceedNextTime(t *testing.T) {
	t.Parallel()
	reset := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                   {nil, false},
		"in progress":           {idem.ErrInProgress, true},
		"in progress, typed":    {&idem.InProgressError{}, true},
		"unknown":               {idem.ErrOutcomeUnknown, true},
		"unknown, typed":        {&idem.OutcomeUnknownError{Err: io.EOF}, true},
		"unknown, cause final":  {&idem.OutcomeUnknownError{Err: &pgconn.PgError{Code: "42P01"}}, true},
		"unknown, context over": {&idem.OutcomeUnknownError{Err: context.Canceled}, true},
		"mismatch":              {idem.ErrMismatch, false},
		"mismatch, typed":       {&idem.MismatchError{}, false},
		"invalid key":           {idem.ErrInvalidKey, false},
		"invalid scope":         {idem.ErrInvalidScope, false},
		"invalid hash":          {idem.ErrInvalidHash, false},
		"invalid response":      {idem.ErrInvalidResponse, false},
		"response too large":    {&idem.ResponseTooLargeError{}, false},
		"transaction aborted":   {idem.ErrTxAborted, false},
		"transaction ended":     {idem.ErrTxEnded, false},
		"Reject":                {idem.Reject(idem.Response{}), false},
		"fn's own":              {errBusiness, false},
		"no rows":               {pgx.ErrNoRows, false},
		"closed tx":             {pgx.ErrTxClosed, false},
		"commit rolled back":    {pgx.ErrTxCommitRollback, false},
		"context canceled":      {context.Canceled, false},
		"context deadline":      {context.DeadlineExceeded, false},
		"context in the net":    {&net.OpError{Op: "read", Err: context.DeadlineExceeded}, false},
		"connection reset":      {reset, true},
		"connection refused":    {&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, true},
		"socket deadline":       {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, true},
		"EOF":                   {io.EOF, true},
		"unexpected EOF":        {io.ErrUnexpectedEOF, true},
		"closed socket":         {net.ErrClosed, true},
		"closed connection":     {pgconn.ErrConnClosed, true},
		"name not found":        {&net.DNSError{Err: "no such host", IsNotFound: true}, true},
	} {
		for how, err := range map[string]error{
			"": test.err, " wrapped": fmt.Errorf("while ordering: %w", test.err), " joined": errors.Join(errBusiness, test.err),
		} {
			if got := idem.Retryable(err); got != (test.want && err != nil) {
				t.Errorf("%s%s: Retryable(%v) = %v", name, how, err, got)
			}
		}
	}
}

func TestRetryableKnowsTheStatesOfTheServer(t *testing.T) {
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

func TestTypedErrorsAreFoundByIsAndAs(t *testing.T) {
	t.Parallel()
	cause := &pgconn.PgError{Code: "57P01"}
	for _, test := range []struct {
		err  error
		is   []error
		says []string
	}{
		{&idem.InProgressError{Key: "key", RetryAfter: 3 * time.Second}, []error{idem.ErrInProgress}, []string{"key", "3s"}},
		{&idem.MismatchError{Key: "key", CreatedAt: time.Date(2026, 11, 21, 2, 0, 0, 0, time.FixedZone("", 7200))}, []error{idem.ErrMismatch}, []string{"key", "2026-11-21T00:00:00Z"}},
		{&idem.ResponseTooLargeError{Size: 11, Limit: 10}, []error{idem.ErrResponseTooLarge}, []string{"11", "10"}},
		{&idem.OutcomeUnknownError{ExecutionID: "operation", Err: cause}, []error{idem.ErrOutcomeUnknown, cause}, []string{"operation", "57P01"}},
	} {
		for _, is := range test.is {
			if err := fmt.Errorf("wrapped: %w", test.err); !errors.Is(err, is) {
				t.Errorf("%v is not %v", err, is)
			}
		}
		for _, says := range append(test.says, "idem: ") {
			if !strings.Contains(test.err.Error(), says) {
				t.Errorf("%q does not say %q", test.err, says)
			}
		}
	}
	var pgErr *pgconn.PgError
	if !errors.As(&idem.OutcomeUnknownError{Err: cause}, &pgErr) {
		t.Error("the cause of an unknown outcome is out of reach")
	}
}

func TestErrorsOfTheLibraryAreDistinct(t *testing.T) {
	t.Parallel()
	all := []error{idem.ErrInProgress, idem.ErrMismatch, idem.ErrInvalidKey, idem.ErrInvalidScope, idem.ErrInvalidHash, idem.ErrInvalidResponse,
		idem.ErrResponseTooLarge, idem.ErrOutcomeUnknown, idem.ErrTxAborted, idem.ErrTxEnded}
	for i, a := range all {
		if !strings.HasPrefix(a.Error(), "idem: ") {
			t.Errorf("%q does not say where it comes from", a)
		}
		for j, b := range all {
			if i != j && (errors.Is(a, b) || a.Error() == b.Error()) {
				t.Errorf("%v is %v", a, b)
			}
		}
	}
}

func TestErrorOfFnIsReturnedIdentically(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for name, own := range map[string]error{
		"plain":     errBusiness,
		"wrapped":   fmt.Errorf("order 7: %w", errBusiness),
		"joined":    errors.Join(errBusiness, io.EOF),
		"no rows":   pgx.ErrNoRows,
		"SQL":       &pgconn.PgError{Code: "23505"},
		"canceled":  context.Canceled,
		"mismatch":  idem.ErrMismatch,
		"busy":      &idem.InProgressError{RetryAfter: time.Second},
		"unknown":   &idem.OutcomeUnknownError{Err: io.EOF},
		"tx closed": pgx.ErrTxClosed,
		"57P01":     &pgconn.PgError{Severity: "FATAL", Code: "57P01"},
		"stale":     &pgconn.PgError{Code: "26000"},
	} {
		runs := 0
		_, err := idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
			runs++
			l.charge(name)(tx)
			return ok, own
		})
		if err != own || runs != 1 {
			t.Errorf("%s: err = %v after %d runs, want fn's own after one", name, err, runs)
		}
		err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			_, err := idem.DoTx(ctx, tx, scope, name, hashA, func(pgx.Tx) (idem.Response, error) { return ok, own })
			return err
		})
		if err != own {
			t.Errorf("%s, joined: err = %v", name, err)
		}
		l.wantNone(name)
	}
}

func TestServerThatCannotBeReachedIsRetryable(t *testing.T) {
	t.Parallel()
	_, err := idemDo(context.Background(), nowhere(t), scope, "k", hashA, neverCalled(t))
	if !idem.Retryable(err) {
		t.Errorf("%v is not retryable", err)
	}
	var refused *pgconn.ConnectError
	if !errors.As(err, &refused) {
		t.Errorf("err = %v, want a *pgconn.ConnectError", err)
	}
}

func TestMissingPrivilegeIsExplained(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	role := fmt.Sprintf("idem_bare_%08x", rand.Uint32()) // roles belong to the whole server, and this test may run twice at once
	if _, err := l.pool.Exec(ctx, "create role "+role); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.pool.Exec(context.Background(), "reset role; drop owned by "+role+"; drop role "+role) })
	if _, err := l.pool.Exec(ctx, "grant all on ledger to "+role); err != nil {
		t.Fatal(err)
	}
	explained := func(how string, err error, remedy string) {
		t.Helper()
		var pgErr *pgconn.PgError
		isPg := errors.As(err, &pgErr)
		if !isPg || pgErr.Code != "42501" || !strings.Contains(err.Error(), remedy) || idem.Retryable(err) {
			t.Errorf("%s: err = %v", how, err)
		}
	}
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "set local role "+role)
		return ok, err
	})
	explained("completing", err, "RESET ROLE")
	l.wantNone("k")
	err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local role "+role); err != nil {
			return err
		}
		_, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
		explained("joining", err, "USAGE on schema idem and SELECT, INSERT, UPDATE on idem.records")
		return note(ctx, tx, "after")
	})
	if err != nil {
		t.Error(err)
	}
	// The grants in the hint are sufficient.
	if _, err := l.pool.Exec(ctx, fmt.Sprintf("grant usage on schema idem to %s; grant select, insert, update on idem.records to %[1]s; set role %[1]s", role)); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if res, err := idemDo(ctx, l.pool, scope, "k", hashA, answer(ok)); err != nil || res.Replayed != (i > 0) {
			t.Errorf("with the privileges of the hint: %+v, %v", res, err)
		}
	}
}

func TestMissingSchemaIsExplained(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Open(t, pgtest.EmptyDSN(t), withMode(mode), maxConns(1))
			for range 2 {
				_, err := idemDo(ctx, pool, scope, "k", hashA, neverCalled(t))
				if err == nil || !strings.Contains(err.Error(), "run the migrations") || idem.Retryable(err) {
					t.Errorf("err = %v", err)
				}
			}
			waitIdle(t, pool)
		})
	}
}
