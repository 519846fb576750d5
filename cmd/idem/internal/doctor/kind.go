package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// kind is a server product that speaks the Postgres protocol without being PostgreSQL.
type kind struct {
	name  string
	is    func(version string, jobs bool) bool
	level Level
	what  string // the limits of idem on this server
}

// kinds are the servers of docs/portability.md. A server is recognized by its version text, or
// by a catalog that only it has.
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
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "0A000" {
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
	if !ok || refused.Code != "42883" && refused.Code != "0A000" && refused.Code != "42704" {
		return Result{}, false
	}
	result := Result{Check: kindCheck, Findings: []Finding{}}
	var version string
	if p.pool.QueryRow(ctx, "SELECT version()").Scan(&version) != nil {
		version = "an unknown server"
	}
	what := fmt.Sprintf("nothing else was checked: this is %s, and it refuses the first query of the checks: %s (SQLSTATE %s)", version, refused.Message, refused.Code)
	result.Findings = append(result.Findings, Finding{Problem, what, "docs/portability.md"})
	return result, true
}

const kindCheck = "server"
