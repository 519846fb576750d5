package operation_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/operation"
)

// Errors of every kind that a program may have.

// coded has an Is of its own.
type coded struct{ Code string }

func (e *coded) Error() string        { return "the bank says " + e.Code }
func (e *coded) Is(target error) bool { return target == errDeclined && e.Code == "declined" }
func (e *coded) Declined() bool       { return e.Code == "declined" }

// veiled has no exported field.
type veiled struct{ code string }

func (e veiled) Error() string        { return "veiled " + e.code }
func (e veiled) Is(target error) bool { return target == errDeclined }

// empty has no field.
type empty struct{}

func (empty) Error() string { return "empty" }

// number is a value.
type number int

func (n number) Error() string { return fmt.Sprint("number ", int(n)) }

// half has an exported field and one that is not.
type half struct {
	Code  int
	cause string
}

func (h *half) Error() string { return fmt.Sprint(h.Code, " because of ", h.cause) }

// unstable encodes into JSON that it cannot decode.
type unstable struct{ N int }

func (unstable) Error() string                { return "unstable" }
func (unstable) MarshalJSON() ([]byte, error) { return []byte(`"not an object"`), nil }

// holder wraps an error in a field, as those of package net do.
type holder struct {
	Op  string
	Err error
}

func (h *holder) Error() string { return h.Op + ": " + h.Err.Error() }
func (h *holder) Unwrap() error { return h.Err }

// PgError has the name of another package's type.
type PgError struct{ Code string }

func (e *PgError) Error() string { return "ERROR: " + e.Code }

var (
	errSentinel = errors.New("a sentinel")
	errStruct   = &veiled{"sentinel"}
)

// findings returns all that a function may find in an error.
func findings(err error) map[string]string {
	found := map[string]string{"text": err.Error(), "final": fmt.Sprint(operation.IsFinal(err))}
	for name, target := range map[string]error{
		"declined": errDeclined, "sentinel": errSentinel, "struct": errStruct, "no rows": pgx.ErrNoRows, "sql no rows": sql.ErrNoRows, "canceled": context.Canceled,
		"deadline": context.DeadlineExceeded, "EOF": io.EOF, "refused": syscall.ECONNREFUSED, "not exist": fs.ErrNotExist, "permission": fs.ErrPermission,
		"timeout": operation.ErrTimeout, "os deadline": os.ErrDeadlineExceeded,
	} {
		found["Is "+name] = fmt.Sprint(errors.Is(err, target), err == target)
	}
	var declines interface{ Declined() bool }
	var timeouts interface{ Timeout() bool }
	found["declines"] = fmt.Sprint(errors.As(err, &declines) && declines.Declined())
	found["times out"] = fmt.Sprint(errors.As(err, &timeouts) && timeouts.Timeout())
	as[*coded](found, err)
	as[veiled](found, err)
	as[*veiled](found, err)
	as[empty](found, err)
	as[number](found, err)
	as[*number](found, err)
	as[*half](found, err)
	as[unstable](found, err)
	as[*holder](found, err)
	as[*PgError](found, err)
	as[*pgconn.PgError](found, err)
	as[*net.OpError](found, err)
	as[*net.DNSError](found, err)
	as[*os.PathError](found, err)
	as[syscall.Errno](found, err)
	return found
}

func as[T error](found map[string]string, err error) {
	var target T
	if errors.As(err, &target) {
		found[fmt.Sprintf("As %T", target)] = fmt.Sprintf("%+v", target)
	}
}

// kinds are errors of steps, and what every run must find in them.
var kinds = map[string]struct {
	err  error
	find map[string]string
}{
	"text":            {errors.New("text"), nil},
	"sentinel":        {errSentinel, map[string]string{"Is sentinel": "true false"}},
	"wrapped":         {fmt.Errorf("wrapped: %w", errSentinel), map[string]string{"Is sentinel": "true false"}},
	"joined":          {errors.Join(errSentinel, errDeclined), map[string]string{"Is sentinel": "true false", "Is declined": "true false"}},
	"decides itself":  {&coded{"declined"}, map[string]string{"As *operation_test.coded": "the bank says declined"}},
	"veiled":          {veiled{"x"}, nil},
	"veiled pointer":  {&veiled{"x"}, nil},
	"empty":           {empty{}, map[string]string{"As operation_test.empty": "empty"}},
	"empty, wrapped":  {fmt.Errorf("wrapped: %w", empty{}), map[string]string{"As operation_test.empty": "empty"}},
	"zero number":     {number(0), map[string]string{"As operation_test.number": "number 0"}},
	"number":          {number(7), map[string]string{"As operation_test.number": "number 7"}},
	"half":            {&half{7, "x"}, nil},
	"unstable":        {unstable{7}, nil},
	"holder":          {&holder{"dial", syscall.ECONNREFUSED}, map[string]string{"Is refused": "true false"}},
	"errno":           {syscall.ENOENT, map[string]string{"As syscall.Errno": "no such file or directory", "Is not exist": "true false"}},
	"net":             {&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, map[string]string{"Is refused": "true false"}},
	"net timeout":     {&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, map[string]string{"Is os deadline": "true false", "times out": "true"}},
	"DNS":             {&net.DNSError{Err: "no such host", Name: "bank.example", IsNotFound: true}, map[string]string{"As *net.DNSError": "lookup bank.example: no such host"}},
	"file":            {&os.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, map[string]string{"Is permission": "true false"}},
	"context":         {fmt.Errorf("of its own: %w", context.DeadlineExceeded), map[string]string{"Is deadline": "true false", "times out": "true"}},
	"EOF":             {io.EOF, map[string]string{"Is EOF": "true true"}},
	"no rows":         {fmt.Errorf("reading: %w", pgx.ErrNoRows), map[string]string{"Is no rows": "true false", "Is sql no rows": "true false"}},
	"server":          {&pgconn.PgError{Severity: "ERROR", Code: "23505", Message: "duplicate", ConstraintName: "one", Detail: strings.Repeat("long ", 50_000)}, map[string]string{"As *pgconn.PgError": "ERROR: duplicate (SQLSTATE 23505)"}},
	"namesake":        {&PgError{"23505"}, map[string]string{"As *operation_test.PgError": "ERROR: 23505"}},
	"long":            {fmt.Errorf("%s: %w", strings.Repeat("é", 5000), errSentinel), map[string]string{"Is sentinel": "true false"}},
	"no UTF-8":        {errors.New("\xff\xfe and \x00"), nil},
	"a long sentinel": {fmt.Errorf("%w and %w", errStruct, syscall.ECONNRESET), nil},
}

// A later run must find the same in an error as the first one, or it takes another branch.
func TestError_SameInEveryRun(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds {
		for step, fail := range failing {
			if step == "tx" && txn.Transient(kind.err) { // its transaction is lost: no function sees it
				continue
			}
			t.Run(name+" of a "+step, func(t *testing.T) {
				t.Parallel()
				first := sameTwice(t, func(op *operation.Op) map[string]string { return findings(fail(op, kind.err)) })
				for what, want := range kind.find {
					if first[what] != want && !(step == "call" && strings.HasSuffix(want, " true")) { // Final wraps it
						t.Errorf("%s is %q, want %q", what, first[what], want)
					}
				}
			})
		}
	}
}

// failing are steps that return a Final error.
var failing = map[string]func(*operation.Op, error) error{
	"tx": func(op *operation.Op, failure error) error {
		_, err := operation.Tx(op, "fails", func(pgx.Tx) (int, error) { return 0, failure })
		return err
	},
	"call": func(op *operation.Op, failure error) error {
		_, err := operation.Call(op, "fails", operation.Keyed(time.Hour), func(context.Context, string) (int, error) { return 0, operation.Final(failure) })
		return err
	},
}

// sameTwice runs a function twice, the second time from its record, and returns what both runs have seen.
func sameTwice(t *testing.T, see func(*operation.Op) map[string]string, opts ...operation.Option) map[string]string {
	t.Helper()
	s := newShop(t)
	var seen []map[string]string
	d := operation.Define("twice", func(op *operation.Op, _ int) (idem.Response, error) {
		seen = append(seen, see(op))
		return created, operation.Sleep(op, "pause", 20*time.Hour)
	}, opts...)
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	s.elapse()
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 {
		t.Fatalf("%d runs", len(seen))
	}
	if diff := cmp.Diff(seen[0], seen[1]); diff != "" {
		t.Errorf("(-first run +replay):\n%s", diff)
	}
	return seen[0]
}

func TestAwait_TimeoutSameInEveryRun(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var seen []bool
	d := define(func(op *operation.Op) error {
		_, err := operation.Await[int](op, "signal", time.Millisecond)
		if errors.Is(err, operation.ErrTimeout) { // and not the end of a run that waits
			seen = append(seen, err == operation.ErrTimeout)
		}
		return longSleep(op, "pause")
	})
	for range 3 {
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); err != nil && !errors.Is(err, idem.ErrInProgress) {
			t.Fatal(err)
		}
		s.elapse()
	}
	if len(seen) < 2 || !seen[0] || !seen[len(seen)-1] {
		t.Errorf("it was ErrTimeout: %v", seen)
	}
}

// The function gets an error that WithErrors names as it was.
func TestWithErrors_NamedErrorIsItself(t *testing.T) {
	t.Parallel()
	named := operation.WithErrors(errStruct, &coded{}, number(0), errSentinel)
	for name, test := range map[string]struct {
		err  error
		find map[string]string
	}{
		"a type with an Is": {fmt.Errorf("wrapped: %w", &coded{"declined"}), map[string]string{"Is declined": "true false", "declines": "true"}},
		"another of it":     {&coded{"lost"}, map[string]string{"Is declined": "false false", "declines": "false", "As *operation_test.coded": "the bank says lost"}},
		"a value":           {errStruct, map[string]string{"Is declined": "true false", "Is struct": "true true"}},
		"a sentinel":        {errSentinel, map[string]string{"Is sentinel": "true true"}},
		"a pointer to it":   {new(number(7)), map[string]string{"As *operation_test.number": "number 7"}},
		"one like a value":  {&veiled{"x"}, map[string]string{"Is declined": "false false", "Is struct": "false false"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := sameTwice(t, func(op *operation.Op) map[string]string { return findings(failing["tx"](op, test.err)) }, named)
			for what, want := range test.find {
				if first[what] != want {
					t.Errorf("%s is %q, want %q", what, first[what], want)
				}
			}
		})
	}
}

// The error of one step is wrapped by that of another.
func TestError_BehindAnotherStep(t *testing.T) {
	t.Parallel()
	first := sameTwice(t, func(op *operation.Op) map[string]string {
		err := failing["call"](op, fmt.Errorf("%w, %w and %w", errSentinel, &half{Code: 7}, io.EOF))
		return findings(failing["call"](op, fmt.Errorf("again: %w", err)))
	})
	if first["Is sentinel"] != "true false" || first["Is EOF"] != "true false" || first["As *operation_test.half"] == "" {
		t.Error(first)
	}
}

func TestError_RejectionOfAStep(t *testing.T) {
	t.Parallel()
	for step, fail := range failing {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := operation.Define("rejects", func(op *operation.Op, _ int) (idem.Response, error) {
				err := fail(op, fmt.Errorf("no: %w", idem.Reject(declined)))
				if paused := longSleep(op, "pause"); paused != nil {
					return idem.Response{}, paused
				}
				return idem.Response{}, err
			})
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
				t.Fatal(err)
			}
			s.elapse()
			if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || !res.Rejected || res.Status != declined.Status {
				t.Error(res, err)
			}
		})
	}
}

// Without the name the function would find something else in the recorded error.
func TestWithErrors_NoLongerNamedParks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	define := func(opts ...operation.Option) *operation.Definition[int] {
		return operation.Define("named", func(op *operation.Op, _ int) (idem.Response, error) {
			_ = failing["tx"](op, &coded{"declined"})
			return created, longSleep(op, "pause")
		}, opts...)
	}
	if _, err := define(operation.WithErrors(&coded{})).Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	s.elapse()
	_, err := define().Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0))
	if !errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), "operation_test.coded, which the code no longer names in WithErrors") {
		t.Error(err)
	}
}

// A recorded error does not change when WithErrors names it later.
func TestWithErrors_NamedLater(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var seen []string
	define := func(opts ...operation.Option) *operation.Definition[int] {
		return operation.Define("named", func(op *operation.Op, _ int) (idem.Response, error) {
			err := failing["tx"](op, &coded{"declined"})
			seen = append(seen, fmt.Sprint(errors.Is(err, errDeclined), errors.As(err, new(*coded))))
			return created, longSleep(op, "pause")
		}, opts...)
	}
	if _, err := define().Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	s.elapse()
	if _, err := define(operation.WithErrors(&coded{})).Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"false true", "false true"}, seen); diff != "" {
		t.Errorf("(-want +seen):\n%s", diff)
	}
}

func TestWithErrors_RefusesAmbiguousErrors(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for name, test := range map[string]struct {
		errs    []error
		refused bool
	}{
		"two of one text":      {[]error{errors.New("one"), errors.New("one")}, true},
		"nil":                  {[]error{nil}, true},
		"one twice":            {[]error{errSentinel, errSentinel}, false},
		"an example twice":     {[]error{&coded{}, &coded{}}, false},
		"what is known anyhow": {[]error{io.EOF, &pgconn.PgError{}, (*net.DNSError)(nil)}, false},
	} {
		d := operation.Define("named", func(*operation.Op, int) (idem.Response, error) { return created, nil }, operation.WithErrors(test.errs...))
		_, err := d.Do(t.Context(), s.pool, scope, name, hashA, 0)
		if refused := err != nil; refused != test.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
