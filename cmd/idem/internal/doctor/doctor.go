// Package doctor finds what usually goes wrong around the records of idem, and says what to do about it.
//
// It only reads. Every check is a transaction of its own that gives up after some seconds, so that a server in trouble is
// not troubled further, and what cannot be checked is said instead of being passed over.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	Note    Level = "note"    // good to know
	Warning Level = "warning" // may go wrong, or costs
	Problem Level = "problem" // goes wrong
	Unknown Level = "unknown" // could not be checked
)

// Finding is something that is wrong.
type Finding struct {
	Level  Level  `json:"level"`
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// Result is what a check has found.
type Result struct {
	Check    string    `json:"check"`
	Findings []Finding `json:"findings"`
}

// Worst is the level of the worst finding, and empty if there is none.
func (r Result) Worst() Level {
	worst := Level("")
	for _, f := range r.Findings {
		if rank[f.Level] > rank[worst] {
			worst = f.Level
		}
	}
	return worst
}

var rank = map[Level]int{Note: 1, Unknown: 2, Warning: 3, Problem: 4}

// check is one thing that may be wrong.
type check struct {
	name string
	run  func(*exam) error

	withoutTable bool     // it makes sense without the tables of idem
	reads        []string // the tables whose rows it reads
}

var checks = concat(serverChecks, clientChecks, schemaChecks, accessChecks, sessionChecks, tableChecks, messageChecks)

func concat(lists ...[]check) (all []check) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// Names are the names of all checks, in order.
func Names() []string {
	var names []string
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

// Examine runs every check, and calls progress before each.
func Examine(ctx context.Context, pool *pgxpool.Pool, opts Options, progress func(name string, done, of int)) ([]Result, error) {
	return examine(ctx, pool, opts, checks, progress)
}

// Only runs the checks of these names.
func Only(ctx context.Context, pool *pgxpool.Pool, opts Options, names ...string) ([]Result, error) {
	some := slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return !slices.Contains(names, c.name) })
	return examine(ctx, pool, opts, some, func(string, int, int) {})
}

func examine(ctx context.Context, pool *pgxpool.Pool, opts Options, checks []check, progress func(name string, done, of int)) ([]Result, error) {
	patient := &patient{pool: pool, opts: opts.withDefaults()}
	if err := record.Tx(ctx, pool, patient.opts.Limits.Statement, func(tx pgx.Tx) error { return patient.meet(ctx, tx) }); err != nil {
		if result, ok := patient.stranger(ctx, err); ok {
			return []Result{result}, nil
		}
		return nil, err
	}
	var results []Result
	for i, c := range checks {
		progress(c.name, i, len(checks))
		result, err := patient.examine(ctx, c)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

// patient is the database that is examined.
type patient struct {
	pool *pgxpool.Pool
	opts Options

	role      string
	self      string // the role that is connected, quoted
	hasTable  bool   // one of idem's, at least
	mayLook   bool   // names up in the schema
	seesAll   bool   // the sessions of other roles
	relations []relation
}

func (p *patient) meet(ctx context.Context, tx pgx.Tx) error {
	err := tx.QueryRow(ctx, `
		SELECT CASE WHEN $1::text = '' THEN current_user::text ELSE $1::text END, quote_ident(current_user),
			coalesce((SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = 'idem'), false),
			pg_has_role(current_user, 'pg_read_all_stats', 'usage')`, p.opts.Role).Scan(&p.role, &p.self, &p.mayLook, &p.seesAll)
	if err != nil {
		return err
	}
	p.relations, err = findRelations(ctx, tx, p.role)
	p.hasTable = len(p.relations) > 0
	return err
}

func (p *patient) examine(ctx context.Context, c check) (Result, error) {
	e := &exam{patient: p, ctx: ctx, result: Result{Check: c.name, Findings: []Finding{}}}
	if !p.hasTable && !c.withoutTable {
		e.unknown("not checked: there is no table idem.records", "run idem migrate up")
		return e.result, nil
	}
	if !e.canRead(c.reads) {
		return e.result, nil
	}
	err := record.Tx(ctx, p.pool, p.opts.Limits.Statement, func(tx pgx.Tx) error {
		e.tx = tx
		return c.run(e)
	})
	var server *pgconn.PgError
	if err != nil && ctx.Err() == nil && errors.As(err, &server) {
		e.unknown(fmt.Sprintf("not checked: %s (SQLSTATE %s)", server.Message, server.Code), e.adviceOn(server.Code))
		err = nil
	}
	return e.result, err
}

// canRead says what is missing for a check that reads these tables, and what to grant.
func (e *exam) canRead(tables []string) bool {
	var absent, refused []string
	for _, name := range tables {
		switch r := e.root(name); {
		case r == nil:
			absent = append(absent, "idem."+name)
		case !r.Readable || !e.mayLook:
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

// granting is what lets the role that is connected read these tables.
func (e *exam) granting(tables []string) string {
	return fmt.Sprintf("GRANT USAGE ON SCHEMA idem TO %[1]s; GRANT SELECT ON %[2]s TO %[1]s", e.self, strings.Join(tables, ", "))
}

// hidden says that a check has not seen the sessions and the standbys of other roles.
func (e *exam) hidden(what string) {
	e.unknown(what+": this role may not see them", "GRANT pg_monitor TO "+e.self+", or connect as a member of pg_monitor")
}

func (e *exam) adviceOn(code string) string {
	switch code {
	case "42501":
		return "GRANT pg_monitor TO " + e.self + ", and the privileges of the role for people on call in docs/operate.md"
	case "42704":
		return "name a role that exists with --role"
	case "42P01", "42703":
		return "run idem migrate up"
	case "57014", "55P03":
		return "try again when the server has less to do, or no session holds a lock on the table"
	}
	return "see the log of the server"
}

// exam is one check that is being made.
type exam struct {
	*patient
	ctx    context.Context
	tx     pgx.Tx
	result Result
}

func (e *exam) add(level Level, what, remedy string) {
	e.result.Findings = append(e.result.Findings, Finding{level, what, remedy})
}

func (e *exam) problem(what, remedy string) { e.add(Problem, what, remedy) }
func (e *exam) warn(what, remedy string)    { e.add(Warning, what, remedy) }
func (e *exam) note(what, remedy string)    { e.add(Note, what, remedy) }
func (e *exam) unknown(what, remedy string) { e.add(Unknown, what, remedy) }

// one reads a row of one statement.
func (e *exam) one(sql string, args []any, into ...any) error {
	return e.tx.QueryRow(e.ctx, sql, args...).Scan(into...)
}

// texts reads a column.
func (e *exam) texts(sql string, args ...any) ([]string, error) {
	rows, err := e.tx.Query(e.ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
