package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/txn"
)

// serverChecks look at the server as a whole. They need no table of idem, so they can run before
// the first migration.
var serverChecks = []check{
	{name: kindCheck, run: serverKind, withoutTable: true},
	{name: "server-version", run: serverVersion, withoutTable: true},
	{name: "primary", run: primary, withoutTable: true},
	{name: "encoding", run: encoding, withoutTable: true},
	{name: "durability", run: durability, withoutTable: true},
	{name: "synchronous-commit", run: synchronousCommit, withoutTable: true},
	{name: "synchronous-standby", run: synchronousStandby, withoutTable: true},
	{name: "connections", run: connections, withoutTable: true},
	{name: "lock-table", run: lockTable, withoutTable: true},
}

// serverVersion looks for a server older than the oldest supported version.
func serverVersion(e *exam) {
	var number int
	var version string
	e.one("SELECT current_setting('server_version_num')::int, current_setting('server_version')", nil, &number, &version)
	if oldest := e.opts.Limits.OldestServer; number < oldest {
		e.problem(fmt.Sprintf("the server is PostgreSQL %s, and idem is tested from %d on", version, oldest/10000),
			fmt.Sprintf("upgrade the server to PostgreSQL %d or later", oldest/10000))
	}
}

// primary looks for a server that rejects writes: a standby, or default_transaction_read_only.
// Every call except a replay writes.
func primary(e *exam) {
	var standby, readOnly bool
	e.one("SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool", nil, &standby, &readOnly)
	switch {
	case standby:
		e.problem("this is a standby: calls need the primary",
			"connect to the primary; with several hosts in the address, add target_session_attrs=read-write")
	case readOnly:
		e.problem("default_transaction_read_only is on: every claim fails with SQLSTATE 25006",
			"ALTER ROLE or ALTER DATABASE … RESET default_transaction_read_only")
	}
}

// encoding looks for a database encoding other than UTF8, which cannot store every key.
func encoding(e *exam) {
	var name string
	e.one("SELECT current_setting('server_encoding')", nil, &name)
	if name != "UTF8" {
		e.problem(fmt.Sprintf("the encoding of the database is %s: a key or scope that it cannot encode fails", name),
			"move to a database with ENCODING 'UTF8'")
	}
}

// durability looks for settings that let a crash of the machine lose or corrupt committed
// transactions.
func durability(e *exam) {
	var fsync, pages bool
	e.one("SELECT current_setting('fsync')::bool, current_setting('full_page_writes')::bool", nil, &fsync, &pages)
	if !fsync {
		e.problem("fsync is off: a crash of the machine may lose or corrupt committed transactions", "set fsync = on, and reload")
	}
	if !pages {
		e.warn("full_page_writes is off: a crash may leave torn pages, unless the file system prevents them", "set full_page_writes = on, and reload")
	}
}

// synchronousCommit looks for a synchronous_commit that loses commits in a crash or in a failover.
// The effect and the record of a call are lost together, so a retry executes again. The data is
// consistent, but the caller had already received the response of the lost execution.
func synchronousCommit(e *exam) {
	var standbys string
	e.one("SELECT current_setting('synchronous_standby_names')", nil, &standbys)
	level := e.setting("synchronous_commit")
	switch {
	case level == "off":
		e.warn("synchronous_commit is off: a crash of the server loses the latest commits, effect and record together, so a retry of an answered call executes again",
			"set synchronous_commit = on for the role that calls, or accept it")
	case level == "local" && standbys != "":
		e.warn("synchronous_commit is local although synchronous_standby_names is set: a failover may lose answered calls",
			"set synchronous_commit = on for the role that calls, or accept it")
	}
}

// synchronousStandby looks for a server that waits for a synchronous standby while none is
// connected.
func synchronousStandby(e *exam) {
	var standbys string
	var connected int
	e.one(`SELECT current_setting('synchronous_standby_names'),
		(SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))`, nil, &standbys, &connected)
	level := e.setting("synchronous_commit")
	// Transactions wait for a standby only if the server names standbys and the level asks for the
	// wait.
	if standbys == "" || level == "off" || level == "local" || connected > 0 {
		return
	}
	if !e.seesAll {
		e.hidden("not checked whether a synchronous standby is connected")
		return
	}
	e.problem(fmt.Sprintf("no synchronous standby is connected (synchronous_standby_names = %s): every COMMIT waits, and calls end with ErrOutcomeUnknown", standbys),
		"start a standby, or remove it from synchronous_standby_names and reload")
}

// connections looks for a connection limit of the server, the database or the role that is nearly
// reached.
func connections(e *exam) {
	var used, most, ofDatabase, mostOfDatabase, ofRole, mostOfRole int
	e.one(`
		SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
			current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
			(SELECT coalesce(sum(numbackends), 0) FROM pg_stat_database WHERE datname = current_database()),
			(SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
			(SELECT count(*) FROM pg_stat_activity WHERE usename = $1),
			coalesce((SELECT rolconnlimit FROM pg_roles WHERE rolname = $1), -1)`, []any{e.role},
		&used, &most, &ofDatabase, &mostOfDatabase, &ofRole, &mostOfRole)
	for _, limit := range []struct {
		of         string
		used, most int
		remedy     string
	}{
		{"the server", used, most, "lower the size of the pools, put a pooler in front, or raise max_connections"},
		{"the database", ofDatabase, mostOfDatabase, "ALTER DATABASE … CONNECTION LIMIT, or smaller pools"},
		{"the role " + e.role, ofRole, mostOfRole, "ALTER ROLE … CONNECTION LIMIT, or smaller pools"},
	} {
		if limit.most >= 0 && float64(limit.used) >= e.opts.Limits.ConnectionsShare*float64(limit.most) {
			e.warn(fmt.Sprintf("%d of the %d connections that %s may have are in use: calls fail when none is left", limit.used, limit.most, limit.of),
				limit.remedy)
		}
	}
	if !e.seesAll {
		e.hidden("the connections of other roles to the server were not counted")
	}
}

// lockTable looks for a shared lock table that is filling up. A claim takes an advisory lock, so
// many open calls need many entries. Fast-path locks are stored outside of that table and do not
// count.
func lockTable(e *exam) {
	var taken, room int64
	e.one(`SELECT (SELECT count(*) FROM pg_locks WHERE NOT fastpath),
		current_setting('max_locks_per_transaction')::int8 * (current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8)`,
		nil, &taken, &room)
	if float64(taken) >= e.opts.Limits.LocksShare*float64(room) {
		e.warn(fmt.Sprintf("the lock table holds %d locks and has room for about %d: when it is full, every statement fails with SQLSTATE 53200", taken, room),
			"find the session with the most locks (SELECT pid, count(*) FROM pg_locks GROUP BY pid ORDER BY 2 DESC), or raise max_locks_per_transaction, which needs a restart")
	}
}

// setting returns the value of a setting, in lower case, as a new session of the examined role
// would see it. If the examined role is not the connected role, a value that was set with ALTER
// ROLE or ALTER DATABASE comes first. For the two timeouts that the doctor sets in its own
// transactions, the query returns the reset value instead of the current one.
func (e *exam) setting(name string) string {
	var value string
	e.one(`
		SELECT coalesce((
			SELECT split_part(assignment, '=', 2)
			FROM pg_db_role_setting s, unnest(setconfig) assignment
			WHERE $2 <> current_user AND lower(split_part(assignment, '=', 1)) = $1
			  AND setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
			  AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = $2))
			ORDER BY setrole <> 0 DESC, setdatabase <> 0 DESC LIMIT 1), (SELECT reset_val || coalesce(unit, '') FROM pg_settings WHERE name = $1 AND name IN ('statement_timeout', 'lock_timeout')),
			current_setting($1, true), '')`,
		[]any{name, e.role}, &value)
	return strings.ToLower(value)
}

// kind is a server product that speaks the Postgres protocol without being PostgreSQL.
type kind struct {
	name  string
	is    func(version string, jobs bool) bool
	level Level
	what  string // the limits of idem on this server
}

// kinds are the servers of docs/portability.md. A server is recognized by its version text, or by a
// catalog that no other server has.
var kinds = []kind{
	{"CockroachDB", func(version string, _ bool) bool { return strings.HasPrefix(version, "CockroachDB") }, Warning,
		"Do and DoTx work, except with the simple protocol; up to 26.1 advisory locks have no effect, and a statement waits for a key in progress; " +
			"it refuses settings of relays and purge, and lookups and gauges read system tables that it lacks"},
	{"YugabyteDB", func(version string, _ bool) bool { return strings.Contains(version, "-YB-") }, Warning,
		"Do, DoTx, operations and inbox work from 2025.1 on with advisory locks enabled; the order of the outbox, purge and gauges need tables of PostgreSQL"},
	{"Aurora DSQL", func(_ string, jobs bool) bool { return jobs }, Problem,
		"it has no advisory locks and no savepoints: every call ends with ErrUnsupported"},
}

// serverKind recognizes servers that are not PostgreSQL, and gateways that reject settings.
func serverKind(e *exam) {
	var version string
	var jobs bool
	e.one("SELECT version(), to_regclass('sys.jobs') IS NOT NULL", nil, &version, &jobs)
	for _, k := range kinds {
		if k.is(version, jobs) {
			e.add(k.level, "this is "+k.name+": "+k.what, "docs/portability.md")
			return
		}
	}
	e.gateway()
}

// gateway tests whether a transaction may set synchronous_commit, as purge does in its own
// transactions.
func (e *exam) gateway() {
	if e.err != nil {
		return
	}
	err := pgx.BeginFunc(e.ctx, e.tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(e.ctx, "SELECT set_config('synchronous_commit', current_setting('synchronous_commit'), true)")
		return err
	})
	if txn.HasCode(err, "0A000") {
		e.note("a gateway such as that of Multigres sets synchronous_commit itself: a purge waits for the disk and for standbys",
			"nothing; docs/portability.md")
		return
	}
	e.failed(err)
}

// unsupported turns err into a result if err shows that the server lacks a function or setting that
// readFacts needs. It reports false for any other error.
func (p *target) unsupported(ctx context.Context, err error) (Result, bool) {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !txn.HasCode(err, "42883", "0A000", "42704") {
		return Result{}, false
	}
	var version string
	if p.pool.QueryRow(ctx, "SELECT version()").Scan(&version) != nil {
		version = "an unknown server"
	}
	what := fmt.Sprintf("nothing else was checked: this is %s, and it refuses the first query of the checks: %s (SQLSTATE %s)", version, refused.Message, refused.Code)
	return Result{Check: kindCheck, Findings: []Finding{{Problem, what, "docs/portability.md"}}}, true
}

const kindCheck = "server"

// clientChecks look at poolers between this program and the server, and compare the clocks of both.
var clientChecks = []check{
	{name: "pooler", run: pooler, withoutTable: true},
	{name: "clock", run: clock, withoutTable: true},
}

// pooler reports whether a connection pooler sits between this program and the server. When a
// connection opens, a server sends the id of its process, and a pooler sends an invented id. So a
// pooler is present if pg_backend_pid returns an id other than the one that was sent. The pooler is
// in transaction mode if one server process serves two connections that are open at once.
func pooler(e *exam) {
	var process uint32
	e.one("SELECT pg_backend_pid()", nil, &process)
	if e.err != nil || process == e.tx.Conn().PgConn().PID() {
		return
	}
	if !sharesProcesses(e.ctx, e.pool) {
		e.note("a pooler in session mode is between this program and the server",
			"nothing to do; the limits of the pooler apply in addition to those of the server")
		return
	}
	e.note("a pooler in transaction mode is between this program and the server: pgx prepares named statements, which not every pooler supports",
		"set default_query_exec_mode=exec (or cache_describe, or simple_protocol) in the address that the program uses, "+
			"unless it is PgBouncer 1.21 or later with max_prepared_statements above zero")
}

// sharesProcesses reports whether one server process serves two open connections. Each connection
// queries its process id several times, because a busy pooler may give two connections different
// processes by chance. It reports false if a connection cannot be opened or used.
func sharesProcesses(ctx context.Context, pool *pgxpool.Pool) bool {
	// A pooler in session mode may have no second connection to the server: do not wait long.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	config := pool.Config().ConnConfig
	seen := map[uint32]int{}
	var conns []*pgx.Conn
	defer func() {
		for _, conn := range conns {
			conn.Close(context.WithoutCancel(ctx))
		}
	}()
	const clients, rounds = 3, 4
	for client := range clients {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return false
		}
		conns = append(conns, conn)
		for range rounds {
			var process uint32
			if err := conn.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()").Scan(&process); err != nil {
				return false
			}
			if other, ok := seen[process]; ok && other != client {
				return true
			}
			seen[process] = client
		}
	}
	// No process served two connections. If there are nevertheless more processes than connections, a
	// connection has changed its process, as it does behind a pooler.
	return len(seen) > clients
}

// clock compares the clocks. The server's reading must lie between two readings of the local clock.
// Otherwise the clocks differ by at least the distance between the server's reading and the nearer
// local one.
func clock(e *exam) {
	before := e.opts.Now()
	var server time.Time
	e.one("SELECT clock_timestamp()", nil, &server)
	after := e.opts.Now()
	difference := time.Duration(0)
	switch {
	case server.Before(before):
		difference = before.Sub(server)
	case server.After(after):
		difference = server.Sub(after)
	}
	if difference > e.opts.Limits.ClockDifference {
		e.warn(fmt.Sprintf("the clocks of this machine and of the server differ by %v: records use the clock of the server, logs use both",
			difference.Round(time.Millisecond)),
			"check the time service (NTP) on both; idem itself uses the clock of the server only")
	}
}
