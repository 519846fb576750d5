package command_test

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/command"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestMain(m *testing.M) {
	time.Local = time.FixedZone("elsewhere", 5*3600) // no output depends on it
	os.Exit(m.Run())
}

// harness runs idem commands against a database of its own.
type harness struct {
	t    *testing.T
	pool *pgxpool.Pool
	dsn  string
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	dsn := pgtest.DSN(t)
	return &harness{t, pgtest.Open(t, dsn), dsn}
}

// output is the result of a command.
type output struct {
	code           int
	stdout, stderr string
}

// idem runs a command in this process, without a terminal.
func (d *harness) idem(args ...string) output { return d.call(context.Background(), nil, args...) }

func (d *harness) call(ctx context.Context, change func(*command.World), args ...string) output {
	d.t.Helper()
	var stdout, stderr bytes.Buffer
	world := command.World{
		Args: args, Now: time.Now, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
		Getenv: func(name string) string { return map[string]string{"DATABASE_URL": d.dsn}[name] },
	}
	if change != nil {
		change(&world)
	}
	code := command.Run(ctx, world)
	return output{code, stdout.String(), stderr.String()}
}

// with runs a command with these environment variables, and with DATABASE_URL.
func (d *harness) with(env map[string]string, args ...string) output {
	d.t.Helper()
	return d.call(context.Background(), func(w *command.World) {
		getenv := w.Getenv
		w.Getenv = func(name string) string { return cmp.Or(env[name], getenv(name)) }
	}, args...)
}

// withKeys runs a command with seal keys in the environment.
func (d *harness) withKeys(keys string, args ...string) output {
	d.t.Helper()
	return d.with(map[string]string{"IDEM_SEAL_KEYS": keys}, args...)
}

// operationID returns the id of the only operation.
func (d *harness) operationID() (id string) {
	d.t.Helper()
	if err := d.pool.QueryRow(d.t.Context(), "SELECT id::text FROM idem.operations").Scan(&id); err != nil {
		d.t.Fatal(err)
	}
	return id
}

// holdKey makes a call that holds the key "under way" until the returned function is called.
func (d *harness) holdKey() (release func()) {
	began, done, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := idem.Do(context.Background(), d.pool, scope, "under way", idem.HashBytes(), func(pgx.Tx) (idem.Response, error) {
			close(began)
			<-done
			return idem.Response{}, nil
		})
		ended <- err
	}()
	<-began
	return func() {
		d.t.Helper()
		close(done)
		if err := <-ended; err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *harness) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.pool.Exec(d.t.Context(), sql, args...); err != nil {
		d.t.Fatal(err)
	}
}

// want checks the exit code, and that the output contains each of parts. An error must be one line.
func (s output) want(t *testing.T, code int, parts ...string) {
	t.Helper()
	if s.code != code {
		t.Errorf("exit code %d, want %d", s.code, code)
	}
	for _, part := range parts {
		if !strings.Contains(s.stdout+s.stderr, part) {
			t.Errorf("%q is missing", part)
		}
	}
	if _, last, asked := strings.Cut(s.stderr, "[y/N] "); asked {
		s.stderr = strings.TrimPrefix(last, "\n")
	}
	if lines := strings.Count(s.stderr, "\n"); code != 0 && code != 3 && lines != 1 {
		t.Errorf("an error has %d lines", lines)
	}
	if t.Failed() {
		t.Logf("output:\n%s%s", s.stdout, s.stderr)
	}
}
