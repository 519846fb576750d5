package operation_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
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

// number is a value.
type number int

func (n number) Error() string { return fmt.Sprint("number ", int(n)) }

var (
	errSentinel = errors.New("a sentinel")
	errStruct   = &veiled{"sentinel"}
)

// findings returns everything that a function can find in an error.
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
	as[number](found, err)
	as[*number](found, err)
	as[*pgconn.PgError](found, err)
	as[*net.OpError](found, err)
	as[*net.DNSError](found, err)
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
	"text":           {errors.New("text"), nil},
	"sentinel":       {errSentinel, map[string]string{"Is sentinel": "true false"}},
	"joined":         {errors.Join(errSentinel, errDeclined), map[string]string{"Is sentinel": "true false", "Is declined": "true false"}},
	"decides itself": {&coded{"declined"}, map[string]string{"As *operation_test.coded": "the bank says declined"}},
	"veiled":         {veiled{"x"}, nil},
	"number":         {number(7), map[string]string{"As operation_test.number": "number 7"}},
	"errno":          {syscall.ENOENT, map[string]string{"As syscall.Errno": "no such file or directory", "Is not exist": "true false"}},
	"net timeout":    {&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, map[string]string{"Is os deadline": "true false", "times out": "true"}},
	"DNS":            {&net.DNSError{Err: "no such host", Name: "bank.example", IsNotFound: true}, map[string]string{"As *net.DNSError": "lookup bank.example: no such host"}},
	"context":        {fmt.Errorf("of its own: %w", context.DeadlineExceeded), map[string]string{"Is deadline": "true false", "times out": "true"}},
	"EOF":            {io.EOF, map[string]string{"Is EOF": "true true"}},
	"no rows":        {fmt.Errorf("reading: %w", pgx.ErrNoRows), map[string]string{"Is no rows": "true false", "Is sql no rows": "true false"}},
	"server":         {&pgconn.PgError{Severity: "ERROR", Code: "23505", Message: "duplicate", ConstraintName: "one", Detail: strings.Repeat("long ", 50_000)}, map[string]string{"As *pgconn.PgError": "ERROR: duplicate (SQLSTATE 23505)"}},
	"long":           {fmt.Errorf("%s: %w", strings.Repeat("é", 5000), errSentinel), map[string]string{"Is sentinel": "true false"}},
	"no UTF-8":       {errors.New("\xff\xfe and \x00"), nil},
}

// Every run finds the same in an error, or the function would take another branch.
func TestError_SameInEveryRun(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(kinds))
	seen := sameTwice(t, func(op *operation.Op) map[string]map[string]string {
		found := map[string]map[string]string{}
		for _, name := range names {
			for _, step := range []string{"tx", "call"} {
				if step == "call" || !txn.Transient(kinds[name].err) { // otherwise the transaction is lost, and no function sees it
					found[step+" "+name] = findings(failing[step](op, kinds[name].err))
				}
			}
		}
		again := failing["call"](op, fmt.Errorf("again: %w", failing["call"](op, fmt.Errorf("%w and %w", errSentinel, io.EOF))))
		found["again"] = findings(again) // the error of one step is wrapped by that of another
		return found
	})
	if again := seen["again"]; again["Is sentinel"] != "true false" || again["Is EOF"] != "true false" {
		t.Error(again)
	}
	for _, name := range names {
		for what, want := range kinds[name].find {
			for _, step := range []string{"tx", "call"} {
				found := seen[step+" "+name]
				if found != nil && found[what] != want && !(step == "call" && strings.HasSuffix(want, " true")) { // Final wraps it
					t.Errorf("%s of a %s: %s is %q, want %q", name, step, what, found[what], want)
				}
			}
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

// sameTwice runs a function twice, the second time from its record, and returns what both runs have
// seen.
func sameTwice[T any](t *testing.T, see func(*operation.Op) T, opts ...operation.Option) T {
	t.Helper()
	s := newShop(t)
	var seen []T
	d := define(func(op *operation.Op) error {
		seen = append(seen, see(op))
		return longSleep(op, "")
	}, opts...)
	s.waits(t, d, "k")
	s.elapse()
	want(t, nil)(s.do(d))
	if len(seen) != 2 {
		t.Fatalf("%d runs", len(seen))
	}
	if diff := cmp.Diff(seen[0], seen[1]); diff != "" {
		t.Errorf("(-first run +replay):\n%s", diff)
	}
	return seen[0]
}

// The function gets an error that WithErrors names as it was.
func TestWithErrors_NamedErrorIsItself(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err  error
		find map[string]string
	}{
		{fmt.Errorf("wrapped: %w", &coded{"declined"}), map[string]string{"Is declined": "true false", "declines": "true"}},
		{&coded{"lost"}, map[string]string{"Is declined": "false false", "declines": "false", "As *operation_test.coded": "the bank says lost"}},
		{errStruct, map[string]string{"Is declined": "true false", "Is struct": "true true"}},
		{errSentinel, map[string]string{"Is sentinel": "true true"}},
		{new(number(7)), map[string]string{"As *operation_test.number": "number 7"}},
		{&veiled{"x"}, map[string]string{"Is declined": "false false", "Is struct": "false false"}}, // which is like a named one
	}
	seen := sameTwice(t, func(op *operation.Op) (found []map[string]string) {
		for _, test := range tests {
			found = append(found, findings(failing["tx"](op, test.err)))
		}
		return found
	}, operation.WithErrors(errStruct, &coded{}, number(0), errSentinel))
	for i, test := range tests {
		for what, want := range test.find {
			if seen[i][what] != want {
				t.Errorf("%v: %s is %q, want %q", test.err, what, seen[i][what], want)
			}
		}
	}
}

// If the name is gone, the function would find something else in the recorded error, so the
// operation parks.
func TestWithErrors_NoLongerNamedParks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	named := func(opts ...operation.Option) *operation.Definition[string] {
		return define(func(op *operation.Op) error {
			_ = failing["tx"](op, &coded{"declined"})
			return longSleep(op, "pause")
		}, opts...)
	}
	s.waits(t, named(operation.WithErrors(&coded{})), "k")
	s.elapse()
	_, err := s.do(named(), idem.WithWait(0))
	if !errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), "operation_test.coded, which the code no longer names in WithErrors") {
		t.Error(err)
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
		d := define(func(*operation.Op) error { return nil }, operation.WithErrors(test.errs...))
		_, err := d.Do(t.Context(), s.pool, scope, name, hashA, "")
		if refused := err != nil; refused != test.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If the function returns the error of another operation, its own operation has not ended.
func TestDo_ErrorOfAnotherOperation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]error{
		"canceled": operation.ErrCanceled, "parked": &operation.ParkedError{OperationID: "another"},
		"canceled, for good": operation.Final(operation.ErrCanceled), "parked, for good": operation.Final(&operation.ParkedError{OperationID: "another"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := define(func(op *operation.Op) error {
				return first(outsideStep(op, "charge"), fmt.Errorf("the inner one: %w", test))
			})
			_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "")
			if err == nil || errors.Is(err, operation.ErrCanceled) || errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), test.Error()) {
				t.Errorf("an operation that is %s is said to be: %v", s.text(`select state from idem.operations`), err)
			}
		})
	}
}

// inner is a value behind a pointer and an interface.
type inner struct{ N int64 }

// beyond is a number that no float64 is.
const beyond = int64(1)<<53 + 1

// The function branches by values. It sees the stored value from the first run on, and no number
// changes. A value that cannot be stored is an error of its step.
func TestValues_AreTheSameInEveryRun(t *testing.T) {
	t.Parallel()
	type wide struct {
		Any    any
		List   []any
		Empty  []int `json:",omitempty"`
		At     time.Time
		Inner  *inner
		Left   string `json:"-"`
		unseen int
	}
	value := wide{Any: beyond, List: []any{uint64(math.MaxUint64), 1.5, nil}, Empty: []int{}, At: time.Now(), Inner: &inner{beyond}, Left: "left out", unseen: 7}
	shown := func(v wide, err error) string {
		return fmt.Sprintf("%#v %#v %#v %#v %v %s %d %v", v.Any, v.List, v.Empty, v.At, v.Inner, v.Left, v.unseen, err)
	}
	seen := sameTwice(t, func(op *operation.Op) map[string]string {
		saw := map[string]string{}
		saw["tx"] = shown(operation.Tx(op, "tx", func(pgx.Tx) (wide, error) { return value, nil }))
		saw["call"] = shown(operation.Call(op, "call", operation.Keyed(time.Hour), func(context.Context, string) (wide, error) { return value, nil }))
		asked := operation.Asked(func(context.Context, string) (wide, bool, error) { return value, true, nil })
		saw["found"] = shown(operation.Call(op, "found", quickly(asked), func(context.Context, string) (wide, error) { return wide{}, errTimeout }))
		_, err := operation.Tx(op, "unstorable", func(tx pgx.Tx) (float64, error) { return math.NaN(), nil })
		saw["unstorable"] = fmt.Sprint(err)
		return saw
	})
	for _, step := range []string{"tx", "call", "found"} {
		if got := seen[step]; !strings.HasPrefix(got, fmt.Sprintf("%#v ", json.Number(fmt.Sprint(beyond)))) || strings.Contains(got, "left out") {
			t.Errorf("%s: %s", step, got)
		}
	}
	if seen["unstorable"] == "<nil>" {
		t.Error("a value that cannot be stored is no error")
	}
}

// safely recovers from what a step does, as a helper of the function's author or of a framework
// may. A goroutine that ends is waited for.
func safely(step func()) (recovered any) {
	done := make(chan any)
	go func() {
		defer func() { done <- recover() }()
		step()
	}()
	return <-done
}

// A function that recovers from the panic of a step cannot end the operation in that run.
func TestRecoveredPanic_EndsTheRun(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for escapeName, escape := range map[string]func(){"a panic": func() { panic("behind the answer") }, "Goexit": runtime.Goexit} {
		for next, goOn := range map[string]func(op *operation.Op) error{
			"takes another card": func(op *operation.Op) error { return outsideStep(op, "another card") },
			"rejects":            func(op *operation.Op) error { return errRejected },
		} {
			t.Run(escapeName+", "+next, func(t *testing.T) {
				t.Parallel()
				keys := map[string]int{}
				d := define(func(op *operation.Op) error {
					safely(func() {
						_, _ = operation.Call(op, "charge", operation.Once, func(_ context.Context, key string) (int, error) {
							keys[key]++
							escape()
							return 1, nil
						})
					})
					return goOn(op)
				})
				_, err := d.Do(t.Context(), s.pool, scope, t.Name(), hashA, "")
				if err == nil || !strings.Contains(err.Error(), `"charge" has panicked`) {
					t.Errorf("got %v", err)
				}
				_, err = d.Do(t.Context(), s.pool, scope, t.Name(), hashA, "", idem.WithWait(limit)) // when its pause is over
				if parked := (*operation.ParkedError)(nil); !errors.As(err, &parked) || parked.Step != "charge" {
					t.Errorf("a call that is Once and in doubt: %v", err)
				}
				if len(keys) != 1 {
					t.Errorf("charged under the keys %v", keys)
				}
			})
		}
	}
}
