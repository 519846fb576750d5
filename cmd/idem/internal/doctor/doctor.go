// Package doctor examines a Postgres server and the tables of idem for common faults, and names a
// remedy for each.
//
// Checks only read. Each check runs in a transaction of its own with a short statement timeout, so
// that the doctor adds little load to a server in trouble. A check that cannot run reports a
// finding of level Unknown, with the privilege or the step that is missing.
//
// To add a check, add it to the list at the top of server.go, schema.go, access.go, session.go,
// table.go or messages.go, and to docs/cli.md.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// Level is the severity of a finding.
type Level string

const (
	Note    Level = "note"    // worth knowing
	Warning Level = "warning" // may fail later, or costs performance
	Problem Level = "problem" // calls fail now, or will fail at the first use
	Unknown Level = "unknown" // the check could not run
)

// Levels has all levels, the most severe first.
var Levels = []Level{Problem, Warning, Unknown, Note}

// Finding is one fault that a check found, with its remedy.
type Finding struct {
	Level  Level  `json:"level"`
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// Result holds the findings of one check.
type Result struct {
	Check    string    `json:"check"`
	Findings []Finding `json:"findings"`
}

// Count returns the number of findings of each level.
func Count(results []Result) map[Level]int {
	counts := map[Level]int{}
	for _, result := range results {
		for _, finding := range result.Findings {
			counts[finding.Level]++
		}
	}
	return counts
}

// check is a named test. Its function run gets an exam, which is one run of the check, and adds
// findings to it.
type check struct {
	name string
	run  func(*exam)

	withoutTable bool     // the check can run in a database without the tables of idem
	reads        []string // the tables whose rows the check reads
}

// checks are the checks of Examine, in the order in which they run and are reported.
var checks = slices.Concat(serverChecks, clientChecks, schemaChecks, accessChecks, sessionChecks, tableChecks, messageChecks)

// only returns the checks of Examine with the given names, and ignores unknown names.
func only(names ...string) []check {
	return slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return !slices.Contains(names, c.name) })
}

// Examine runs all checks against the database of pool and returns one Result per check. It calls
// progress before each check.
//
// A check that the server refuses does not fail Examine: it gets a finding of level Unknown.
// Examine returns an error if ctx ends, if the connection fails, or if the server rejects the
// queries that precede the checks.
func Examine(ctx context.Context, pool *pgxpool.Pool, opts Options, progress func(name string, done, of int)) ([]Result, error) {
	return examine(ctx, pool, opts, checks, progress)
}

// examine collects the facts that all checks share, then runs the checks one after the other. If
// the server is not PostgreSQL and refuses the query for these facts, the only result names the
// server.
func examine(ctx context.Context, pool *pgxpool.Pool, opts Options, checks []check, progress func(name string, done, of int)) ([]Result, error) {
	target := &target{pool: pool, opts: opts.withDefaults()}
	if err := record.Tx(ctx, pool, target.opts.Limits.Statement, func(tx pgx.Tx) error { return target.readFacts(ctx, tx) }); err != nil {
		if result, ok := target.unsupported(ctx, err); ok {
			return []Result{result}, nil
		}
		return nil, err
	}
	var results []Result
	for i, c := range checks {
		progress(c.name, i, len(checks))
		result, err := target.examine(ctx, c)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

// target is the database under examination, with the facts that all checks share.
type target struct {
	pool *pgxpool.Pool
	opts Options

	role      string
	self      string // the role of the connection, quoted
	hasTable  bool   // at least one table of idem exists
	hasUsage  bool   // the connected role has USAGE on schema idem
	seesAll   bool   // the connected role sees the sessions of other roles
	relations []relation
}

// readFacts reads the roles, the privileges of the connected role and the relations of idem.
func (p *target) readFacts(ctx context.Context, tx pgx.Tx) error {
	err := tx.QueryRow(ctx, `
		SELECT CASE WHEN $1::text = '' THEN current_user::text ELSE $1::text END, quote_ident(current_user),
			coalesce((SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = 'idem'), false),
			pg_has_role(current_user, 'pg_read_all_stats', 'usage')`, p.opts.Role).Scan(&p.role, &p.self, &p.hasUsage, &p.seesAll)
	if err != nil {
		return err
	}
	p.relations, err = findRelations(ctx, tx, p.role)
	p.hasTable = len(p.relations) > 0
	return err
}

// examine runs one check in a transaction of its own. If a table or a privilege is missing, or the
// server rejects a statement, the result has a finding of level Unknown. Any other error is
// returned.
func (p *target) examine(ctx context.Context, c check) (Result, error) {
	e := &exam{target: p, ctx: ctx, result: Result{Check: c.name, Findings: []Finding{}}}
	if !p.hasTable && !c.withoutTable {
		e.unknown("not checked: there is no table idem.records", "run idem migrate up")
		return e.result, nil
	}
	if !e.canRead(c.reads) {
		return e.result, nil
	}
	err := record.Tx(ctx, p.pool, p.opts.Limits.Statement, func(tx pgx.Tx) error {
		e.tx = tx
		c.run(e)
		return e.err
	})
	e.err = nil // so that e.unknown can add a finding
	var server *pgconn.PgError
	if err != nil && ctx.Err() == nil && errors.As(err, &server) {
		e.unknown(fmt.Sprintf("not checked: %s (SQLSTATE %s)", server.Message, server.Code), e.adviceOn(server.Code))
		err = nil
	}
	return e.result, err
}

// canRead reports whether the connected role can read all the given tables. If not, canRead adds a
// finding of level Unknown that names the missing tables or the missing grants.
func (e *exam) canRead(tables []string) bool {
	var absent, refused []string
	for _, name := range tables {
		switch r := e.root(name); {
		case r == nil:
			absent = append(absent, "idem."+name)
		case !r.Readable || !e.hasUsage:
			refused = append(refused, r.Name)
		}
	}
	if len(absent) > 0 {
		e.unknown("not checked: there is no table "+strings.Join(absent, ", "), "see the checks migrations and table")
	} else if len(refused) > 0 {
		e.unknown("not checked: this role may not read "+strings.Join(refused, ", "), e.granting(refused))
	}
	return len(absent)+len(refused) == 0
}

// granting returns the GRANT statements that let the connected role read tables.
func (e *exam) granting(tables []string) string {
	return fmt.Sprintf("GRANT USAGE ON SCHEMA idem TO %[1]s; GRANT SELECT ON %[2]s TO %[1]s", e.self, strings.Join(tables, ", "))
}

// hidden adds a finding of level Unknown: the connected role cannot see other roles' sessions or
// standbys. The parameter what names the part of the check that is incomplete.
func (e *exam) hidden(what string) {
	e.unknown(what+": this role may not see them", "GRANT pg_monitor TO "+e.self+", or connect as a member of pg_monitor")
}

// adviceOn returns the remedy for a check that failed with the SQLSTATE code.
func (e *exam) adviceOn(code string) string {
	switch code {
	case "42501":
		return "GRANT pg_monitor TO " + e.self + ", and the privileges of the role for people on call in docs/operate.md"
	case "42704":
		return "name a role that exists with --role"
	case "42P01", "42703":
		return "run idem migrate up"
	case "57014", "55P03":
		return "try again when the server is less busy, or when no session locks the table"
	}
	return "see the log of the server"
}

// exam is one run of a check.
//
// It stores the first error. After an error, its methods run no query, return zero values and drop
// findings: a check must not draw conclusions from data that it could not read.
type exam struct {
	*target
	ctx    context.Context
	tx     pgx.Tx
	result Result
	err    error
}

// failed stores err if no error is stored yet, and reports whether an error is stored.
func (e *exam) failed(err error) bool {
	if e.err == nil {
		e.err = err
	}
	return e.err != nil
}

// add adds a finding, unless the check has failed.
func (e *exam) add(level Level, what, remedy string) {
	if e.err == nil {
		e.result.Findings = append(e.result.Findings, Finding{level, what, remedy})
	}
}

func (e *exam) problem(what, remedy string) { e.add(Problem, what, remedy) }
func (e *exam) warn(what, remedy string)    { e.add(Warning, what, remedy) }
func (e *exam) note(what, remedy string)    { e.add(Note, what, remedy) }
func (e *exam) unknown(what, remedy string) { e.add(Unknown, what, remedy) }

// one runs sql, which returns one row, and scans its columns into the pointers.
func (e *exam) one(sql string, args []any, into ...any) {
	if e.err == nil {
		e.err = e.tx.QueryRow(e.ctx, sql, args...).Scan(into...)
	}
}

// texts runs sql, which returns one column of text, and returns the values.
func (e *exam) texts(sql string, args ...any) []string {
	return collect(e, pgx.RowTo[string], sql, args...)
}

// structs runs sql and returns its rows. The columns become the fields of T, in their order.
func structs[T any](e *exam, sql string, args ...any) []T {
	return collect(e, pgx.RowToStructByPos[T], sql, args...)
}

// collect runs sql and returns its rows, each converted by scan.
func collect[T any](e *exam, scan pgx.RowToFunc[T], sql string, args ...any) (all []T) {
	if e.err == nil {
		rows, _ := e.tx.Query(e.ctx, sql, args...) // CollectRows returns the error
		all, e.err = pgx.CollectRows(rows, scan)
	}
	return all
}

// each runs sql, scans each row into the pointers, and calls add. Every row is scanned into the
// same variables, so add must not keep their addresses.
func (e *exam) each(sql string, args []any, into []any, add func()) {
	if e.err == nil {
		rows, _ := e.tx.Query(e.ctx, sql, args...) // ForEachRow returns the error
		_, e.err = pgx.ForEachRow(rows, into, func() error { add(); return nil })
	}
}

// Options configure Examine and Verify.
type Options struct {
	// The role whose privileges and settings are examined. The default is the role of the
	// connection.
	Role string
	Scan bool             // scan whole tables, however large they are
	Now  func() time.Time // the local clock; default time.Now

	SealKeys []string      // IDs of the seal keys that the processes have
	Against  *pgxpool.Pool // the database that Verify compares with; may be nil

	Limits Limits
}

// Limits are the thresholds of findings. A zero field gets the default of withDefaults.
type Limits struct {
	OldestServer     int           // the oldest supported server_version_num
	OldTransaction   time.Duration // age of a transaction that delays vacuum or holds keys
	OldXmin          int64         // how many transactions a standby or slot may lag behind
	ClockDifference  time.Duration
	ConnectionsShare float64 // used connections as a share of the limit
	LocksShare       float64 // locks as a share of the size of the lock table
	DeadShare        float64 // dead rows as a share of live rows
	DeadRows         int64   // with fewer dead rows DeadShare is not applied
	BloatedSize      int64   // in bytes; a smaller table is not checked for bloat
	PurgeLag         time.Duration
	OldMessage       time.Duration // age of an unpublished message
	OldFailure       time.Duration // for how long a consumer may fail to handle a message
	ScanUpTo         int64         // in bytes; a larger table is scanned only if Options.Scan is set
	Statement        time.Duration // statement timeout of a check
}

// withDefaults sets the fields that are zero. The thresholds are high: a finding has to be worth a
// person's time, and a threshold that a healthy server reaches now and then teaches people to
// ignore the doctor.
func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &o.Limits
	l.OldestServer = cmp.Or(l.OldestServer, 140000)
	l.OldTransaction = cmp.Or(l.OldTransaction, 5*time.Minute)
	l.OldXmin = cmp.Or(l.OldXmin, 1_000_000)
	l.ClockDifference = cmp.Or(l.ClockDifference, 2*time.Second)
	l.ConnectionsShare = cmp.Or(l.ConnectionsShare, 0.8)
	l.LocksShare = cmp.Or(l.LocksShare, 0.5)
	l.DeadShare = cmp.Or(l.DeadShare, 0.3)
	l.DeadRows = cmp.Or(l.DeadRows, 50_000)
	l.BloatedSize = cmp.Or(l.BloatedSize, 64<<20)
	l.PurgeLag = cmp.Or(l.PurgeLag, 24*time.Hour)
	l.OldMessage = cmp.Or(l.OldMessage, 5*time.Minute)
	l.OldFailure = cmp.Or(l.OldFailure, 15*time.Minute)
	l.ScanUpTo = cmp.Or(l.ScanUpTo, 64<<20)
	l.Statement = cmp.Or(l.Statement, 10*time.Second)
	return o
}
