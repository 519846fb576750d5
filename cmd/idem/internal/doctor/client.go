package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// clientChecks look at the way between this program and the server.
var clientChecks = []check{
	{name: "pooler", run: pooler, withoutTable: true},
	{name: "clock", run: clock, withoutTable: true},
}

// pooler reports whether a connection pooler sits between this program and the server. A server
// sends its process ID when a connection opens, and a pooler makes one up. So a pooler is present
// if pg_backend_pid returns a different ID. The pooler is in transaction mode if one server process
// serves two connections that are open at once.
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
// asks several times, because a busy pooler may give two connections different processes by chance.
// It reports false if a connection cannot be opened or used.
func sharesProcesses(ctx context.Context, pool *pgxpool.Pool) bool {
	// In session mode a small pool may have no second connection to give: do not wait long for it.
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
	// More processes than connections: a connection was served by several of them.
	return len(seen) > clients
}

// clock compares the clocks. The server's reading must lie between two readings of the local clock.
// The distance to the nearer one is the least possible difference.
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
