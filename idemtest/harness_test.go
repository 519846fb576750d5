package idemtest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// recorder is a testing.TB that stores failures, so that a test can check them.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	errors   []string
	cleanups []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(a ...any)            { r.fail(fmt.Sprintln(a...)) }
func (r *recorder) Errorf(f string, a ...any) { r.fail(fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(a ...any)            { r.fail(fmt.Sprintln(a...)); r.FailNow() }
func (r *recorder) Fatalf(f string, a ...any) { r.fail(fmt.Sprintf(f, a...)); r.FailNow() }
func (r *recorder) Fail()                     { r.fail("") }
func (r *recorder) FailNow()                  { r.fail(""); runtime.Goexit() }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	if text != "" {
		r.errors = append(r.errors, strings.TrimSpace(text))
	}
}

// record runs f as a test of its own and returns what it reports.
func record(t *testing.T, f func(t testing.TB)) []string {
	t.Helper()
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			for i := len(r.cleanups) - 1; i >= 0; i-- {
				r.cleanups[i]()
			}
		}()
		f(r)
	}()
	<-ended
	return r.errors
}

// requireFound fails unless the first reported promise is want. try runs a bad program with a
// multiple of its patience. If another promise is reported first, requireFound tries again with ten
// times the patience: on a busy machine an answer may come too late.
func requireFound(t *testing.T, want string, try func(times time.Duration) []string) {
	t.Helper()
	errors := try(1)
	if len(errors) == 0 || !strings.HasPrefix(errors[0], "idemtest: "+want+": ") {
		errors = try(10)
	}
	if len(errors) == 0 {
		t.Errorf("nothing was found, want %s", want)
		return
	}
	if !strings.HasPrefix(errors[0], "idemtest: "+want+": ") {
		t.Errorf("found, instead of %s:\n%s", want, strings.Join(errors, "\n"))
	}
	for _, text := range errors {
		t.Log(text)
	}
}

func requireNothing(t *testing.T, errors []string) {
	t.Helper()
	if len(errors) > 0 {
		t.Errorf("a good program is reported:\n%s", strings.Join(errors, "\n"))
	}
}

// exec runs statements that must succeed.
func exec(t testing.TB, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := pool.Exec(context.Background(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// count returns a function that counts the rows of a table.
func count(table string) func(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	return func(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
		err = pool.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&n)
		return n, err
	}
}
