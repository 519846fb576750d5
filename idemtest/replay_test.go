package idemtest_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/operation"
)

type pgxPool = *pgxpool.Pool

var update = flag.Bool("update", false, "rewrite the histories in testdata")

func defined(code checkout) *operation.Definition[string] {
	return operation.Define("checkout", func(op *operation.Op, item string) (idem.Response, error) { return code(op, nil, item) })
}

// charges returns a checkout with these steps. Its calls return a constant.
func charges(names ...string) checkout {
	return func(op *operation.Op, _ pgxPool, item string) (idem.Response, error) {
		for _, name := range names {
			var err error
			switch {
			case name == "reserve":
				_, err = reserve(op, item)
			case strings.HasPrefix(name, "changed "):
				op.Changed(name)
			default:
				_, err = operation.Call(op, name, day, func(context.Context, string) (string, error) { return "charge 1", nil })
			}
			if err != nil {
				return idem.Response{}, err
			}
		}
		return idem.Response{Status: 201}, nil
	}
}

func TestReplay_FindsCodeThatParksAnOperation(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	for _, test := range []struct {
		name, breaks string
		code         checkout
	}{
		{"the same code", "", charges("reserve", "charge")},
		{"a step at the end", "", charges("reserve", "charge", "tell")},
		{"a step that asks Changed", "", func(op *operation.Op, pool pgxPool, item string) (idem.Response, error) {
			if op.Changed("check") {
				return charges("check", "reserve", "charge")(op, pool, item)
			}
			return charges("reserve", "charge")(op, pool, item)
		}},
		{"a step at the beginning", "new-code-goes-on", charges("check", "reserve", "charge")},
		{"a step is gone", "new-code-goes-on", charges("charge")},
		{"a step is renamed", "new-code-goes-on", charges("reserve", "pay")},
		{"a value of another type", "new-code-goes-on", func(op *operation.Op, _ pgxPool, _ string) (idem.Response, error) {
			_, err := operation.Tx(op, "reserve", func(pgx.Tx) ([]string, error) { return nil, nil })
			return idem.Response{}, err
		}},
		{"the order of a map", "goes-on", func(op *operation.Op, pool pgxPool, item string) (idem.Response, error) {
			if runs.Add(1)%2 == 0 {
				return charges("charge", "reserve")(op, pool, item)
			}
			return charges("reserve", "charge")(op, pool, item)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			errors := record(t, func(t testing.TB) { idemtest.Replay(t, "testdata/histories/checkout-*.json", defined(test.code)) })
			if test.breaks == "" {
				requireNothing(t, errors)
			} else {
				requireFound(t, test.breaks, func(time.Duration) []string { return errors })
			}
		})
	}
}

// These errors are no reason to park: a file that is no history, and a history without a
// definition.
func TestReplay_ReportsWhatItCannotReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		pattern, want string
		definition    operation.Runnable
	}{
		{filepath.Join(dir, "*.json"), "the document is not a history", defined(whole)},
		{filepath.Join(dir, "*.none"), "no history matches", defined(whole)},
		{"testdata/histories/*.json", "no definition has the name", operation.Define("other", func(*operation.Op, int) (idem.Response, error) { return idem.Response{}, nil })},
	} {
		errors := record(t, func(t testing.TB) { idemtest.Replay(t, test.pattern, test.definition) })
		if len(errors) == 0 || !strings.Contains(errors[0], test.want) {
			t.Errorf("%s: %q, want %s", test.pattern, errors, test.want)
		}
	}
}

// The histories in testdata are those that this version records, apart from ids. -update writes
// them.
func TestHistories_AreWhatThisVersionRecords(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for name, code := range map[string]checkout{
		"checkout-charged": func(op *operation.Op, pool pgxPool, item string) (idem.Response, error) {
			_, err := charges("reserve", "charge")(op, pool, item)
			return idem.Response{}, errors.Join(err, down)
		},
		"checkout-charge-in-doubt": func(op *operation.Op, _ pgxPool, item string) (idem.Response, error) {
			_, err := reserve(op, item)
			if err == nil {
				_, err = operation.Call(op, "charge", operation.Once, func(context.Context, string) (int, error) { return 0, down })
			}
			return idem.Response{}, err
		},
		"checkout-completed": charges("reserve", "charge"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := idemtest.Pool(t)
			exec(t, pool, schema)
			_, err := defined(code).Do(t.Context(), pool, "ada", orderKey, idem.HashBytes([]byte("teapot")), "teapot")
			if err != nil && !errors.Is(err, down) && !errors.Is(err, operation.ErrParked) {
				t.Fatal(err)
			}
			var id string
			if err := pool.QueryRow(t.Context(), `SELECT id::text FROM idem.operations`).Scan(&id); err != nil {
				t.Fatal(err)
			}
			got, err := operation.History(t.Context(), pool, id)
			if err != nil {
				t.Fatal(err)
			}
			got = []byte(strings.ReplaceAll(string(got), id, "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10"))
			file := filepath.Join("testdata", "histories", name+".json")
			if *update {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(file); err != nil || string(want) != string(got) {
				t.Errorf("%v\n%s, recorded now:\n%s", err, want, got)
			}
		})
	}
}
