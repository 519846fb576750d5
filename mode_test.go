package idem_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/pgtest"
)

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func withMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode }
}

// hostile is text that breaks out of anything that is quoted by halves.
const hostile = `'; drop table idem.records; -- $1 $2 \' "\x00" ` + "`$$" + ` %s é😀`

func TestEveryExecModeKeepsThePromises(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			checkPromises(t, newLedger(t, withMode(mode)))
		})
	}
}

// Whatever a session's settings do to the text form of values, records are read back as they were written.
func TestSessionSettingsDoNotChangeWhatIsReplayed(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			checkPromises(t, newLedger(t, withMode(mode), func(config *pgxpool.Config) {
				for name, value := range map[string]string{
					"TimeZone": "Pacific/Chatham", "DateStyle": "ISO, DMY", "IntervalStyle": "sql_standard",
					"extra_float_digits": "-15", "search_path": "nowhere",
				} {
					config.ConnConfig.RuntimeParams[name] = value
				}
				config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
					_, err := conn.Exec(ctx, "create schema if not exists nowhere")
					return err
				}
			}))
		})
	}
}

// checkPromises runs through what a user relies on, on one connection mode.
func checkPromises(t *testing.T, l *ledger) {
	ctx := context.Background()
	stored := idem.Response{
		Status: -7,
		Header: map[string][]string{"Link": {"<a>; rel=\"x\"", "b, c"}, "X-" + hostile: {hostile, ""}},
		Body:   append([]byte(hostile), 0, 1, 0xff, '\\', '\''),
	}
	fn := func(tx pgx.Tx) (idem.Response, error) {
		if _, err := l.charge(hostile)(tx); err != nil {
			return idem.Response{}, err
		}
		return stored, nil
	}
	first, err := idem.Do(ctx, l.pool, scope, hostile, hashA, fn)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stored, first.Response); diff != "" {
		t.Error(diff)
	}
	second, err := idem.Do(ctx, l.pool, scope, hostile, hashA, fn)
	first.Replayed = true
	if diff := cmp.Diff(first, second); err != nil || diff != "" {
		t.Errorf("err = %v\n%s", err, diff)
	}
	l.wantOnce(hostile)
	if age := time.Since(first.CreatedAt); age < -time.Minute || age > time.Minute {
		t.Errorf("CreatedAt is %v ago", age)
	}

	if _, err := idem.Do(ctx, l.pool, scope, hostile, hashB, fn); !errors.Is(err, idem.ErrMismatch) {
		t.Errorf("mismatch: %v", err)
	}
	rejected, err := idem.Do(ctx, l.pool, scope, "rejected", hashA, func(tx pgx.Tx) (idem.Response, error) {
		_, err := l.charge("rejected")(tx)
		return idem.Response{}, errors.Join(err, idem.Reject(idem.Response{Status: 402}))
	})
	if err != nil || !rejected.Rejected || l.entries("rejected") != 0 {
		t.Errorf("rejected = %+v, %v", rejected, err)
	}
	failed := func(tx pgx.Tx) (idem.Response, error) { l.charge("failed")(tx); return idem.Response{}, errBusiness }
	if _, err := idem.Do(ctx, l.pool, scope, "failed", hashA, failed); !errors.Is(err, errBusiness) {
		t.Errorf("failed: %v", err)
	}
	l.wantNone("failed")
	checkJoined(t, l)
}

func checkJoined(t *testing.T, l *ledger) {
	ctx := context.Background()
	err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		for range 2 {
			if _, err := idem.DoTx(ctx, tx, scope, "joined", hashA, l.charge("joined")); err != nil {
				return err
			}
		}
		_, err := idem.DoTx(ctx, tx, scope, "failed", hashA, func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(ctx, "select 1/0")
			return idem.Response{}, err
		})
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "22012" {
			t.Errorf("err = %v", err)
		}
		_, err = idem.DoTx(ctx, tx, scope, "rejected too", hashA, func(tx pgx.Tx) (idem.Response, error) {
			l.charge("rejected too")(tx)
			return idem.Response{}, idem.Reject(idem.Response{Status: 402})
		})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	l.wantOnce("joined")
	l.wantNone("failed")
	if l.entries("rejected too") != 0 || l.records("rejected too") != 1 {
		t.Error("the rejection was not recorded without its effect")
	}
}

// A prepared statement that somebody discarded, or that no longer fits the table, costs a new connection, not an error.
func TestStaleStatementsAreReplacedUnnoticed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for i, spoil := range []string{
		"deallocate all",
		"discard all",
		"alter table idem.records alter column status type bigint",
	} {
		warm, next := fmt.Sprint("warm", i), fmt.Sprint("next", i)
		if _, err := idem.Do(ctx, l.pool, scope, warm, hashA, l.charge(warm)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.pool.Exec(ctx, spoil); err != nil {
			t.Fatal(err)
		}
		if _, err := idem.Do(ctx, l.pool, scope, next, hashA, l.charge(next)); err != nil {
			t.Fatalf("%s: %v", spoil, err)
		}
		l.wantOnce(warm)
		l.wantOnce(next)
	}
}

func TestEveryExecModeWorksBehindPgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	dsn := startPgBouncer(t, pgtest.DSN(t))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe} {
		l := ledgerOn(t, pgtest.Open(t, dsn, withMode(mode)))
		if _, err := l.pool.Exec(context.Background(), "truncate ledger, idem.records"); err != nil {
			t.Fatal(err)
		}
		checkPromises(t, l)
		if t.Failed() {
			t.Fatalf("in mode %v", mode)
		}
	}
}

// startPgBouncer runs a pooler in front of the database until the test is over and returns its address.
func startPgBouncer(t *testing.T, dsn string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program = "/usr/sbin/pgbouncer"; !exists(program) {
			if os.Getenv("IDEM_TEST_REQUIRE") != "" {
				t.Fatal("IDEM_TEST_REQUIRE is set, but there is no pgbouncer")
			}
			t.Skip("no pgbouncer: install it to run this test")
		}
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "idem-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	port := freePort(t)
	password := ""
	if config.Password != "" {
		password = " password='" + config.Password + "'"
	}
	ini := fmt.Sprintf(`[databases]
%s = host=%s port=%d user=%s%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
`, config.Database, config.Host, config.Port, config.User, password, port)
	path := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(path, []byte(ini), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-q", path)
	cmd.Dir = dir
	unprivileged(t, cmd, dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	address := fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", config.User, port, config.Database)
	awaitServer(t, address)
	return address
}

// unprivileged makes a program that refuses to run as root run as somebody else.
func unprivileged(t *testing.T, cmd *exec.Cmd, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// awaitServer returns once the address takes connections.
func awaitServer(t *testing.T, address string) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		conn, err := pgx.Connect(context.Background(), address+"&default_query_exec_mode=exec")
		if err == nil {
			conn.Close(context.Background())
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }
