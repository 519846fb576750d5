package pgtest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestCloningWaitsForATemplateInUse(t *testing.T) {
	t.Parallel()
	attempts := 0
	err := whileInUse(t.Context(), func() error {
		if attempts++; attempts < 3 {
			return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: objectInUse})
		}
		return nil
	})
	if err != nil || attempts != 3 {
		t.Errorf("%d attempts, %v; want 3 and no error", attempts, err)
	}
}

func TestCloningGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	inUse := &pgconn.PgError{Code: objectInUse}
	err := whileInUse(ctx, func() error { cancel(); return inUse })
	if !errors.Is(err, inUse) {
		t.Errorf("got %v, want Postgres's own answer", err)
	}
}

func TestCloningReportsAnyOtherErrorAtOnce(t *testing.T) {
	t.Parallel()
	attempts := 0
	err := whileInUse(t.Context(), func() error { attempts++; return &pgconn.PgError{Code: "53300"} })
	if err == nil || attempts != 1 {
		t.Errorf("%d attempts, %v; want 1 and an error", attempts, err)
	}
}

func TestNamesOfDatabases(t *testing.T) {
	t.Parallel()
	s := &server{template: "idem_test_0123abcd"}
	for _, test := range []struct{ test, slug string }{
		{"TestDo", "do"},
		{"TestDo/a key's \"name\", é", "do_a_key_s__name____"},
		{"BenchmarkFirstRun-2", "benchmarkfirstrun_2"},
		{"Test" + strings.Repeat("X", 200), strings.Repeat("x", 35)},
	} {
		name := s.nameFor(test.test)
		if want := regexp.MustCompile("^" + s.template + "_" + test.slug + "_[0-9a-f]{8}$"); !want.MatchString(name) {
			t.Errorf("%s: %s, want %s", test.test, name, want)
		}
		if len(name) > 63 {
			t.Errorf("%s: %d bytes, which Postgres would cut", name, len(name))
		}
		if s.nameFor(test.test) == name {
			t.Errorf("%s: the same name twice", test.test)
		}
	}
}
