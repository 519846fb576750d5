package command_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/command"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// TestErrors_AreOneLineWithARemedy checks the message and the exit code of each error.
func TestErrors_AreOneLineWithARemedy(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.keepAll()
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
		"no operation id":    {[]string{"operation", "show", "17"}, 2, []string{"not an operation id"}},
		"no such operation":  {[]string{"operation", "retry", placedID, "--yes"}, 4, []string{"no operation"}},
		"no mark":            {[]string{"operation", "list", "--after", "17"}, 2, []string{"--after"}},
		"no outcome":         {[]string{"operation", "resolve", parkedID}, 2, []string{"--happened, --not-happened or --refused"}},
		"no reason":          {[]string{"operation", "resolve", parkedID, "--not-happened", "--reason", " "}, 2, []string{"--reason"}},
		"a value of nothing": {[]string{"operation", "resolve", parkedID, "--reason", "r", "--not-happened", "--value", "1"}, 2, []string{"--value"}},
		"two outcomes":       {[]string{"operation", "resolve", parkedID, "--reason", "r", "--happened", "--not-happened"}, 2, []string{"--happened"}},
		"no JSON":            {[]string{"operation", "resolve", parkedID, "--reason", "r", "--happened", "--value", "{"}, 2, []string{"not JSON"}},
		"no value":           {[]string{"operation", "resolve", parkedID, "--reason", "r", "--happened"}, 2, []string{"--value null"}},
		"no call in doubt":   {[]string{"operation", "resolve", parkedID, "--reason", "r", "--not-happened", "--step", "x"}, 5, []string{"retry and cancel"}},
		"not parked":         {[]string{"operation", "retry", waitsID, "--yes"}, 5, []string{"is running"}},
		"ended":              {[]string{"operation", "cancel", doneID, "--yes"}, 5, []string{"is completed"}},
		"an id and --name":   {[]string{"operation", "retry", parkedID, "--name", "checkout"}, 2, []string{"--all"}},
		"none is selected":   {[]string{"operation", "cancel", "--all", "--name", "refund", "--yes"}, 4, []string{"select no"}},
		"all of them":        {[]string{"dead", "drop", "--all", "--yes"}, 2, []string{"filter"}},
		"an id and --all":    {[]string{"dead", "drop", "--all", deadOutID}, 2, []string{"--all"}},
		"several letters":    {[]string{"dead", "drop", twiceID, "--yes"}, 2, []string{"--consumer"}},
		"no dead letter":     {[]string{"dead", "show", waitingID}, 4, []string{"no such dead letter"}},
		"no letter's mark":   {[]string{"dead", "list", "--after", "x"}, 2, []string{"--after"}},
		"a mark of delayed":  {[]string{"outbox", "list", "--state", "delayed", "--after", "1"}, 2, []string{"--after"}},
		"no relay":           {[]string{"outbox", "forget", "nothing", "--yes"}, 4, []string{"no relay"}},
		"no act's operation": {[]string{"audit", "--operation", "x"}, 2, []string{"not an operation id"}},
		"no page's address":  {[]string{"ui", "--listen", "7466"}, 2, []string{"HOST:PORT"}},
		"no shell":           {[]string{"completion", "csh"}, 2, []string{"bash"}},
		"a schema of others": {[]string{"show", "s", "k", "-d", empty}, 1, []string{"42P01"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := (&harness{t: t, dsn: d.dsn}).idem(tt.args...)
			got.want(t, tt.code, tt.says...)
			if got.stdout != "" || !strings.HasPrefix(got.stderr, "idem: ") {
				t.Errorf("printed %q and %q", got.stdout, got.stderr)
			}
			if strings.Contains(got.stderr, "secret") {
				t.Errorf("the error contains the password: %s", got.stderr)
			}
		})
	}
}

func TestColors_AreForTerminalsOnly(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.keep()
	for name, test := range map[string]struct {
		terminal bool
		env      map[string]string
		want     bool
	}{
		"a pipe": {}, "a terminal": {terminal: true, want: true},
		"NO_COLOR": {true, map[string]string{"NO_COLOR": "1"}, false}, "a dumb terminal": {true, map[string]string{"TERM": "dumb"}, false},
	} {
		got := d.call(context.Background(), func(w *command.World) {
			w.OutIsTerminal = test.terminal
			w.Getenv = func(name string) string { return map[string]string{"DATABASE_URL": d.dsn, name: test.env[name]}[name] }
		}, "list", "-d", d.dsn)
		if strings.Contains(got.stdout, "\x1b[") != test.want {
			t.Errorf("%s: %q", name, got.stdout)
		}
	}
}

// A command waits for a lock only if it needs it, and not for long.
func TestCommands_WaitBrieflyForALock(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
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
	if _, err := tx.Exec(t.Context(), "LOCK TABLE idem.records IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	d.idem("explain", scope, left, "--timeout", "1s").want(t, 1, "no answer within 1s: raise --timeout")
}

func TestEvict_SaysThatTheOperationIsMissing(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.keep()
	d.exec("UPDATE idem.records SET state = 'running' WHERE key = $1", left)
	d.idem("evict", scope, left, "--execution", leftID, "--yes", "--dry-run").want(t, 0, "its operation has no row")
}

func TestKey_MayComeFromStandardInput(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.keep()
	read := func(w *command.World) { w.Stdin = strings.NewReader(placed + "\n") }
	d.call(context.Background(), read, "show", scope, "-").want(t, 0, placedID)
	d.idem("show", scope, "-").want(t, 1, "no key on standard input")
	withBody := func(w *command.World) { w.Stdin = strings.NewReader(placed + "\n{}") }
	d.call(context.Background(), withBody, "explain", scope, "-", "--request", "-").want(t, 0, idem.HashBytes([]byte("{}")).String())
}

func TestExplain_ReportsACallInProgress(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	release := d.holdKey()
	d.idem("explain", scope, "under way").want(t, 0, "waits", "ErrInProgress", "a transaction holds the key, since", "Transactions that hold keys", "idle in transaction", "pg_terminate_backend")
	d.idem("explain", scope, "under way", "--json").want(t, 0, `"held_by": {`, `"pid": `)
	d.idem("stuck", "--older", "1ms").want(t, 3, "Transactions that hold keys", "idle in transaction", "pg_terminate_backend")
	d.idem("stuck", "--older", "1h").want(t, 0, "nothing is stuck")
	release()
	d.idem("stuck", "--older", "1ms").want(t, 0, "nothing is stuck")
}

func TestStuck_ListsOperationsWithoutProgress(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
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
	d.idem("stuck", "--older", "1h").want(t, 3, "Parked operations", ids["parked"], "charge", "it is not known whether it happened",
		"Operations that are due and that no process executes", ids["due"])
	d.idem("stuck", "--json").want(t, 3, `"name": "refund"`, `"parked": [`, `"unattended": [`)

	d.idem("explain", scope, "due").want(t, 0, "waits", "operation "+ids["due"]+" (refund) is in progress", "no process executes it")
	d.idem("explain", scope, "parked").want(t, 0, "refused", "operation.ErrParked", "is parked at step charge:", "call_in_doubt: it is not known whether it happened")
	d.idem("list", "--state", "running").want(t, 0, ids["due"], ids["parked"])
	d.idem("evict", scope, "due", "--execution", ids["due"], "--yes").want(t, 5, "nothing was changed", "idem operation cancel")
}

// A log has the execution id of a record. A person may know a key without its scope.
func TestList_FindsARecordByExecutionOrKey(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.keep()
	d.idem("list", "--execution", placedID, "--full").want(t, 0, placed, placedID)
	// The flag --operation is the old name of --execution.
	d.idem("list", "--operation", placedID, "--full").want(t, 0, placed, placedID)
	d.idem("evict", scope, left, "--operation", leftID, "--dry-run").want(t, 0, "deletes the processing record")
	d.idem("list", "--key", placed, "--full").want(t, 0, scope, placedID)
	d.idem("list", "--key", "never used").want(t, 0, "no records")
	d.idem("list", "--execution", "nonsense").want(t, 1, "nonsense")
}

func TestVerify_ComparesTwoDatabases(t *testing.T) {
	t.Parallel()
	d, other := newHarness(t), newHarness(t)
	d.idem("verify").want(t, 0, "0 problems, 0 warnings")
	d.idem("verify", "--against", other.dsn).want(t, 0, "0 problems, 0 warnings")
	other.keep()
	d.idem("verify", "--against", other.dsn).want(t, 3, "same-rows", "idem.records has 0 rows here")
	d.idem("verify", "--against", other.dsn, "--json").want(t, 3, `"check": "same-rows"`)
	d.idem("verify", "--against", "mysql://x").want(t, 1, "begins with")
}
