package doctor

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/migrations"
)

var schemaChecks = []check{
	{name: "migrations", run: migrated, withoutTable: true},
	{name: "table", run: table, withoutTable: true},
	{name: "columns", run: columns},
	{name: "primary-key", run: primaryKey},
	{name: "collation", run: collation},
	{name: "unlogged", run: unlogged},
	{name: "indexes", run: indexes},
	{name: "sequences", run: sequenceBehind},
	{name: "triggers", run: triggers},
	{name: "rules", run: rules},
	{name: "replica-identity", run: replicaIdentity},
}

// migrated compares the applied migrations with the migrations in this program. A schema that is
// behind fails now. A schema that is ahead works for its own release, and this program may judge it
// wrongly.
func migrated(e *exam) {
	known, err := versions()
	e.failed(err)
	found := e.texts(`SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = 'idem_goose_version' AND c.relkind = 'r' ORDER BY 1`)
	switch {
	case len(found) == 0 && e.hasTable:
		e.note("there is no table idem_goose_version: another tool created the schema, so its version is unknown",
			"see the check columns instead")
		return
	case len(found) == 0:
		e.problem("no migration has been applied", "run idem migrate up")
		return
	case len(found) > 1:
		e.warn("there are several version tables: "+strings.Join(found, ", "),
			"idem migrate uses public.idem_goose_version: drop the others, if no goose of a service uses them")
	}
	if !e.mayRead(found[0]) {
		return
	}
	// Goose appends a row for each up and down, so the last row of a version counts.
	applied := collect(e, pgx.RowTo[int64], `SELECT version_id FROM (SELECT DISTINCT ON (version_id) version_id, is_applied FROM `+found[0]+`
		ORDER BY version_id, id DESC) AS latest WHERE is_applied AND version_id > 0 ORDER BY 1`)
	if behind := without(known, applied); len(behind) > 0 {
		e.problem(fmt.Sprintf("the schema is behind: migrations %v are missing", behind), "run idem migrate up")
	}
	if ahead := without(applied, known); len(ahead) > 0 {
		e.warn(fmt.Sprintf("the schema is ahead: this program does not know the migrations %v", ahead),
			"use the version of idem that ran the migrations: go install github.com/idem-go/idem/cmd/idem@latest")
	}
}

// versions returns the versions of the migrations in this program.
func versions() ([]int64, error) {
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		return nil, err
	}
	var known []int64
	for _, file := range files {
		number, _, _ := strings.Cut(file, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, err
		}
		known = append(known, version)
	}
	return known, nil
}

// without returns the elements of all that are not in some.
func without[T comparable](all, some []T) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return slices.Contains(some, v) })
}

// mayRead reports whether the connected role can read table, given as schema.table. If not, mayRead
// adds a finding of level Unknown with the missing grants.
func (e *exam) mayRead(table string) (readable bool) {
	e.one(`SELECT has_schema_privilege(c.relnamespace, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE format('%I.%I', n.nspname, c.relname) = $1`, []any{table}, &readable)
	if !readable {
		schema, _, _ := strings.Cut(table, ".")
		e.unknown("not checked: this role may not read "+table,
			fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %[2]s; GRANT SELECT ON %[3]s TO %[2]s", schema, e.self, table))
	}
	return readable
}
