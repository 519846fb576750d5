package command_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/command"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// Each error is one line with a remedy, and has its exit code.
func TestErrorsAreOneLineThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	empty := pgtest.EmptyDSN(t)
	for name, tt := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"no such command":    {[]string{"dance"}, 2, []string{"dance", "idem --help"}},
		"no such flag":       {[]string{"list", "--colour"}, 2, []string{"--colour", "idem list --help"}},
		"no argument":        {[]string{"show", "s"}, 2, []string{"<key>", "idem show --help"}},
		"no such state":      {[]string{"list", "--state", "done"}, 2, []string{"completed", "done"}},
		"no span":            {[]string{"list", "--older", "yesterday"}, 2, []string{"yesterday", "7d"}},
		"no limit":           {[]string{"list", "--limit", "0"}, 2, []string{"--limit"}},
		"no execution":       {[]string{"evict", "s", "k"}, 2, []string{"--execution"}},
		"no hash":            {[]string{"explain", "s", "k", "--hash", "abc"}, 2, []string{"64 hexadecimal digits"}},
		"no body":            {[]string{"explain", "s", "k", "--without", "/x"}, 2, []string{"--request"}},
		"no file":            {[]string{"explain", "s", "k", "--request", "/nowhere"}, 1, []string{"/nowhere"}},
		"no server":          {[]string{"list", "-h", "127.0.0.1", "-p", "1"}, 1, []string{"connection refused", "127.0.0.1:1", "PGHOST"}},
		"no host":            {[]string{"list", "-h", "nowhere.invalid"}, 1, []string{"no such host"}},
		"no socket":          {[]string{"list", "-h", "/nowhere"}, 1, []string{"no such socket"}},
		"no database":        {[]string{"list", "-d", "nowhere"}, 1, []string{`database "nowhere" does not exist`, "PGDATABASE"}},
		"no role":            {[]string{"list", "-U", "nobody_of_this_name"}, 1, []string{"nobody_of_this_name", "PGPASSWORD"}},
		"no address":         {[]string{"list", "-d", "postgres://u:secret@h:port/x"}, 1, []string{"cannot parse"}},
		"no schema":          {[]string{"list", "-d", empty}, 1, []string{"idem migrate up"}},
		"no shell":           {[]string{"completion", "csh"}, 2, []string{"bash"}},
		"a schema of others": {[]string{"show", "s", "k", "-d", empty}, 1, []string{"42P01"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := (&desk{t: t, dsn: d.dsn}).idem(tt.args...)
			got.want(t, tt.code, tt.says...)
			if got.stdout != "" || !strings.HasPrefix(got.stderr, "idem: ") {
				t.Errorf("said %q and %q", got.stdout, got.stderr)
			}
			if strings.Contains(got.stderr, "secret") {
				t.Errorf("it tells the password: %s", got.stderr)
			}
		})
	}
}

func TestKeysAndResponsesAreNotShownUnlessAskedFor(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keep()
	secrets := []string{placed, declined, forgotten, left, "secret", "declined\x1b", "X-Order"}
	for _, args := range [][]string{
		{"list"}, {"list", "--json"}, {"show", scope, placed}, {"show", scope, placed, "--json"}, {"show", scope, declined, "--json"},
		{"explain", scope, placed}, {"explain", scope, placed, "--json"}, {"stuck"}, {"stuck", "--json"},
		{"evict", scope, left, "--execution", placedID}, {"evict", scope, left, "--execution", leftID},
		{"evict", scope, left, "--execution", leftID, "--dry-run", "--json"}, {"show", "nowhere", placed},
	} {
		got := d.idem(args...)
		for _, secret := range secrets {
			if strings.Contains(got.stdout+got.stderr, secret) {
				t.Errorf("%q shows %q", args, secret)
			}
		}
	}
}

func TestColoursAreForTerminalsOnly(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keep()
	coloured := func(change func(*command.World)) bool {
		return strings.Contains(d.call(context.Background(), change, "list").stdout, "\x1b[")
	}
	getenv := func(values map[string]string) func(string) string {
		return func(name string) string {
			if name == "DATABASE_URL" {
				return d.dsn
			}
			return values[name]
		}
	}
	if coloured(nil) {
		t.Error("coloured for a pipe")
	}
	if !coloured(func(w *command.World) { w.OutIsTerminal = true }) {
		t.Error("not coloured for a terminal")
	}
	for _, values := range []map[string]string{{"NO_COLOR": "1"}, {"TERM": "dumb"}} {
		if coloured(func(w *command.World) { w.OutIsTerminal, w.Getenv = true, getenv(values) }) {
			t.Errorf("coloured in spite of %v", values)
		}
	}
}

// A scope may contain escape sequences from clients. They must not reach the terminal.
func TestScopesCannotSteerATerminal(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		VALUES (E'a\u202Eb\u200Bc\x1b[2J', E'\x1b]0;x\x07abcdefghijklmnop', '', gen_random_uuid(), now(), now() + '1 h', 'completed')`)
	for _, args := range [][]string{{"list"}, {"list", "--full"}} {
		got := d.idem(args...)
		got.want(t, 0, `a\u202eb\u200bc\x1b[2J`)
		if regexp.MustCompile("[\x1b\x07\u202e\u200b]").MatchString(got.stdout) {
			t.Errorf("%q", got.stdout)
		}
	}
}

// Commands wait for a lock only briefly, and only if they need one.
func TestCommandsSayWhoTheyWouldHaveWaitedFor(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keep()
	tx, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT FROM idem.records WHERE key = $1 FOR UPDATE", left); err != nil {
		t.Fatal(err)
	}
	d.idem("show", scope, left).want(t, 0)
	d.idem("evict", scope, left, "--execution", leftID, "--yes").want(t, 1, "another session holds a lock")
}

func TestKeyMayBeReadFromStandardInput(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keep()
	read := func(w *command.World) { w.Stdin = strings.NewReader(placed + "\n") }
	d.call(context.Background(), read, "show", scope, "-").want(t, 0, placedID)
	d.idem("show", scope, "-").want(t, 1, "no key on standard input")
}

func TestExplainTellsOfACallUnderWay(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
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
	d.idem("explain", scope, "under way").want(t, 0, "waits", "ErrInProgress", "a transaction holds the key, since", "Transactions that hold keys", "idle in transaction", "pg_terminate_backend")
	d.idem("explain", scope, "under way", "--json").want(t, 0, `"held_by": {`, `"pid": `)
	d.idem("stuck", "--older", "1ms").want(t, 3, "Transactions that hold keys", "idle in transaction", "pg_terminate_backend")
	d.idem("stuck", "--older", "1h").want(t, 0, "nothing is stuck")
	close(done)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	d.idem("stuck", "--older", "1ms").want(t, 0, "nothing is stuck")
}

func TestOperationsThatDoNotGoOnAreStuckAndExplained(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	refund := operation.Define("refund", func(*operation.Op, int) (idem.Response, error) { return idem.Response{}, nil })
	ids := map[string]string{}
	for _, key := range []string{"due", "parked"} {
		err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) (err error) {
			ids[key], err = refund.Start(t.Context(), tx, scope, key, idem.HashBytes(), 1)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	d.idem("stuck", "--older", "1h").want(t, 0, "nothing is stuck")
	d.exec("UPDATE idem.operations SET wake_at = now() - interval '2 h'")
	d.exec("UPDATE idem.operations SET state = 'parked', step = 'charge', reason = 'call_in_doubt', reason_step = 'charge', reason_text = 'it is not known whether it happened' WHERE key = 'parked'")
	d.idem("stuck", "--older", "1h").want(t, 3, "Operations that are parked", ids["parked"], "charge", "it is not known whether it happened",
		"Operations that are due, and without an owner", ids["due"])
	d.idem("stuck", "--json").want(t, 3, `"name": "refund"`, `"parked": [`, `"unattended": [`)

	d.idem("explain", scope, "due").want(t, 0, "waits", "operation "+ids["due"]+" (refund) is in progress", "no process works on it")
	d.idem("explain", scope, "parked").want(t, 0, "refused", "operation.ErrParked", "is parked at step charge:", "call_in_doubt: it is not known whether it happened")
	d.idem("list", "--state", "running").want(t, 0, ids["due"], ids["parked"])
	d.idem("evict", scope, "due", "--execution", ids["due"], "--yes").want(t, 5, "nothing was changed", "idem operation cancel")
}

// Logs contain execution IDs, and people know keys without their scope.
func TestRecordIsFoundByWhatLogsTell(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keep()
	d.idem("list", "--execution", placedID, "--full").want(t, 0, placed, placedID)
	d.idem("list", "--operation", placedID, "--full").want(t, 0, placed, placedID) // the former name of the flag
	d.idem("evict", scope, left, "--operation", leftID, "--dry-run").want(t, 0, "deletes the processing record")
	d.idem("list", "--key", placed, "--full").want(t, 0, scope, placedID)
	d.idem("list", "--key", "never used").want(t, 0, "no records")
	d.idem("list", "--execution", "nonsense").want(t, 1, "nonsense")
}

func TestVerifyComparesTwoDatabases(t *testing.T) {
	t.Parallel()
	d, other := newDesk(t), newDesk(t)
	d.idem("verify").want(t, 0, "0 problems, 0 warnings")
	d.idem("verify", "--against", other.dsn).want(t, 0, "0 problems, 0 warnings")
	other.keep()
	d.idem("verify", "--against", other.dsn).want(t, 3, "same-rows", "idem.records has 0 rows here")
	d.idem("verify", "--against", other.dsn, "--json").want(t, 3, `"check": "same-rows"`)
	d.idem("verify", "--against", "mysql://x").want(t, 1, "begins with")
}
