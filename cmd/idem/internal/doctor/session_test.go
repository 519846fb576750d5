package doctor_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestDoctor_FindsSettings(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	keepalives := "tcp_keepalives_idle=60 tcp_keepalives_interval=10 tcp_keepalives_count=6 client_connection_check_interval=5s"
	for _, test := range []struct {
		settings, check string
		level           doctor.Level // empty if the check is quiet
		says            []string
	}{
		{"", "idle-in-transaction", doctor.Warning, []string{"is off", "idle_in_transaction_session_timeout = '60s'"}},
		{"idle_in_transaction_session_timeout=2s", "idle-in-transaction", doctor.Warning, []string{"is 2 s", "raise it"}},
		{"idle_in_transaction_session_timeout=1min", "idle-in-transaction", "", nil},
		{"tcp_keepalives_idle=7200", "keepalives", doctor.Warning, []string{"2 h", "tcp_keepalives_idle = 60s"}},
		{keepalives, "keepalives", "", nil},
		{"", "timeouts", "", nil},
		{"lock_timeout=200ms", "timeouts", doctor.Warning, []string{"lock_timeout is 200 ms", "raise"}},
		{"", "isolation", "", nil},
		{"default_transaction_isolation=serializable", "isolation", doctor.Note, []string{"serializable"}},
		{"synchronous_commit=off", "synchronous-commit", doctor.Warning, []string{"is off", "synchronous_commit = on"}},
		{"synchronous_commit=local", "synchronous-commit", doctor.Warning, []string{"failover may lose"}},
		{"synchronous_commit=on", "synchronous-commit", "", nil},
		// The standby that this server waits for does not exist.
		{"synchronous_commit=on", "synchronous-standby", doctor.Problem, []string{"ghost", "ErrOutcomeUnknown"}},
		{"", "durability", doctor.Problem, []string{"fsync is off", "fsync = on"}},
		{"", "primary", "", nil},
		{"default_transaction_read_only=on", "primary", doctor.Problem, []string{"25006", "RESET default_transaction_read_only"}},
		{"", "encoding", "", nil},
	} {
		changed := testDBAt(t, w.with(func(u *url.URL) {
			query := u.Query()
			for _, setting := range strings.Fields(test.settings) {
				name, value, _ := strings.Cut(setting, "=")
				query.Set(name, value)
			}
			u.RawQuery = query.Encode()
		}))
		if test.level == "" {
			changed.findsNothing(test.check)
		} else {
			changed.finds(test.check, test.level, test.says...)
		}
		changed.pool.Close()
	}
	w.findsNothing("clock")
	for _, difference := range []time.Duration{-time.Minute, time.Minute} {
		w.opts.Now = func() time.Time { return time.Now().Add(difference) }
		w.finds("clock", doctor.Warning, "differ by", "NTP")
	}
	w.findsNothing("server-version")
	w.opts.Limits.OldestServer = 990000
	w.finds("server-version", doctor.Problem, "PostgreSQL 1", "upgrade")
}

// The role of the program is seldom the role that runs the doctor.
func TestDoctor_ReadsTheSettingsOfTheNamedRole(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.opts.Role = roleOf(t, w.role(""))
	w.finds("idle-in-transaction", doctor.Warning, "is off for the role "+w.opts.Role)
	w.exec("ALTER ROLE " + w.opts.Role + " SET idle_in_transaction_session_timeout = '90s'")
	w.findsNothing("idle-in-transaction")
	for name, value := range map[string]string{"tcp_keepalives_idle": "1min", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "6", "client_connection_check_interval": "5s"} {
		w.exec("ALTER ROLE " + w.opts.Role + " SET " + name + " = '" + value + "'")
	}
	w.findsNothing("keepalives")
	w.findsNothing("timeouts")
	for name, value := range map[string]string{"statement_timeout": "300", "lock_timeout": "200ms"} {
		w.exec("ALTER ROLE " + w.opts.Role + " SET " + name + " = '" + value + "'")
	}
	w.finds("timeouts", doctor.Warning, "statement_timeout is 300 ms for the role "+w.opts.Role)
	w.finds("timeouts", doctor.Warning, "lock_timeout is 200 ms for the role "+w.opts.Role)
}

func TestDoctor_FindsAnEncodingThatCannotWriteEveryKey(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	name := fmt.Sprintf("idem_latin_%d", time.Now().UnixNano())
	w.exec("CREATE DATABASE " + name + " TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), w.dsn)
		if err == nil {
			defer conn.Close(context.Background())
			_, err = conn.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		}
		if err != nil {
			t.Error(err)
		}
	})
	testDBAt(t, w.with(func(u *url.URL) { u.Path = "/" + name })).finds("encoding", doctor.Problem, "LATIN1", "UTF8")
}

func TestDoctor_FindsOldTransactions(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.opts.Limits.OldTransaction = time.Millisecond
	w.session("SET application_name = 'forgotten'", "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1")
	w.finds("xmin-transaction", doctor.Warning, "forgotten", "idle in transaction", "pg_terminate_backend")
	w.findsNothing("held-keys")

	began, done, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := idem.Do(context.Background(), w.pool, "s", "k", idem.HashBytes(), func(pgx.Tx) (idem.Response, error) {
			close(began)
			<-done
			return idem.Response{}, nil
		})
		ended <- err
	}()
	<-began
	w.finds("held-keys", doctor.Warning, "ErrInProgress", "idem stuck")
	close(done)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	w.findsNothing("held-keys")
}

// Ending a session in another database would harm another service without any benefit.
func TestDoctor_IgnoresTransactionsOfOtherDatabases(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.opts.Limits.OldTransaction = time.Millisecond
	stranger := []string{"SET application_name = 'stranger'", "BEGIN ISOLATION LEVEL REPEATABLE READ", "CREATE TABLE mine ()"}
	sessionAt(t, pgtest.DSN(t), stranger...)
	for _, f := range w.findings("xmin-transaction") {
		t.Errorf("%+v", f)
	}
	w.session(stranger...)
	w.finds("xmin-transaction", doctor.Warning, "stranger")
}

func TestDoctor_FindsTableLocksWithoutWaiting(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.findsNothing("locked")
	w.session("BEGIN", "LOCK TABLE idem.records IN ACCESS EXCLUSIVE MODE")
	w.finds("locked", doctor.Problem, "holds AccessExclusiveLock", "lock_timeout")
}

func TestDoctor_FindsConnectionsRunningOut(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	app := w.role("CONNECTION LIMIT 2")
	w.opts.Role = roleOf(t, app)
	sessionAt(t, app)
	sessionAt(t, app)
	w.finds("connections", doctor.Warning, "2 of the 2 connections that the role "+w.opts.Role, "CONNECTION LIMIT")
}

func TestDoctor_RecognizesAPoolerAndItsMode(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	testDBAt(t, dsn).findsNothing("pooler")
	testDBAt(t, pgtest.Proxy(t, dsn).DSN()).findsNothing("pooler") // a proxy that pools nothing
	testDBAt(t, pgtest.PgBouncer(t, dsn)).finds("pooler", doctor.Note, "transaction mode", "default_query_exec_mode=exec")
}
