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
	{name: "triggers", run: triggers},
	{name: "rules", run: rules},
	{name: "replica-identity", run: replicaIdentity},
}

// migrated compares the versions that are applied with those that this program knows.
func migrated(e *exam) error {
	known, err := versions()
	if err != nil {
		return err
	}
	tables, err := e.texts(`SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = 'idem_goose_version' AND c.relkind = 'r' ORDER BY 1`)
	switch {
	case err != nil:
		return err
	case len(tables) == 0 && e.hasTable:
		e.note("there is no table idem_goose_version: the schema was made by another tool, and what is missing of it cannot be told by version",
			"look at the check of the columns instead")
		return nil
	case len(tables) == 0:
		e.problem("no migration has been applied", "run idem migrate up")
		return nil
	case len(tables) > 1:
		e.warn("there are several version tables: "+strings.Join(tables, ", ")+": the search_path decided which one a migration used",
			"find out which one is right, and drop the other")
	}
	applied, err := appliedVersions(e, tables[0])
	if err != nil {
		return err
	}
	if behind := without(known, applied); len(behind) > 0 {
		e.problem(fmt.Sprintf("the schema is behind: migrations %v are missing", behind), "run idem migrate up")
	}
	if ahead := without(applied, known); len(ahead) > 0 {
		e.warn(fmt.Sprintf("the schema is ahead: this program does not know the migrations %v", ahead),
			"use the version of idem that migrated: go install github.com/idem-go/idem/cmd/idem@latest")
	}
	return nil
}

// appliedVersions reads goose's table, in which the last row of a version counts.
func appliedVersions(e *exam, table string) ([]int64, error) {
	rows, err := e.tx.Query(e.ctx, `SELECT version_id FROM (SELECT DISTINCT ON (version_id) version_id, is_applied FROM `+table+`
		ORDER BY version_id, id DESC) AS latest WHERE is_applied AND version_id > 0 ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// versions are those of the migrations in this program.
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

func without(all, some []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(all), func(v int64) bool { return slices.Contains(some, v) })
}

func table(e *exam) error {
	if !e.hasTable {
		e.problem("there is no table idem.records in this database", "run idem migrate up, or check the address")
		return nil
	}
	var kind string
	if err := e.one("SELECT relkind::text FROM pg_class WHERE oid = 'idem.records'::regclass", nil, &kind); err != nil {
		return err
	}
	if kind != "r" && kind != "p" {
		e.problem("idem.records is no table but something else (relkind "+kind+")", "look who has put it there; idem migrate down and up make it anew")
	}
	return nil
}

// wantedColumns are those that calls need, with their types.
var wantedColumns = [][2]string{
	{"scope", "text"}, {"key", "text"}, {"hash", "bytea"}, {"operation_id", "uuid"}, {"created_at", "timestamp with time zone"},
	{"expires_at", "timestamp with time zone"}, {"state", "text"}, {"status", "integer"}, {"completed_at", "timestamp with time zone"},
	{"header", "jsonb"}, {"body", "bytea"}, {"sealed_by", "text"},
}

func columns(e *exam) error {
	found, err := e.texts(`SELECT attname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute
		WHERE attrelid = 'idem.records'::regclass AND attnum > 0 AND NOT attisdropped`)
	if err != nil {
		return err
	}
	for _, column := range wantedColumns {
		want := column[0] + " " + column[1]
		if slices.Contains(found, want) {
			continue
		}
		is := "is missing"
		for _, other := range found {
			if kind, ok := strings.CutPrefix(other, column[0]+" "); ok {
				is = "is of the type " + kind
			}
		}
		e.problem(fmt.Sprintf("the column %s of idem.records %s, and has to be %s", column[0], is, column[1]),
			"run idem migrate up; if it was altered by hand, alter it back")
	}
	return nil
}

func primaryKey(e *exam) error {
	var definition string
	var valid bool
	err := e.one(`SELECT coalesce(string_agg(pg_get_constraintdef(c.oid), ''), ''), coalesce(bool_and(i.indisvalid AND i.indisready AND i.indimmediate), true)
		FROM pg_constraint c JOIN pg_index i ON i.indexrelid = c.conindid
		WHERE c.conrelid = 'idem.records'::regclass AND c.contype = 'p'`, nil, &definition, &valid)
	switch {
	case err != nil:
		return err
	case definition == "":
		e.problem("idem.records has no primary key: nothing keeps a key from being executed twice",
			"stop the callers, remove double rows, then ALTER TABLE idem.records ADD PRIMARY KEY (scope, key)")
	case definition != "PRIMARY KEY (scope, key)":
		e.problem("the primary key of idem.records is another: "+definition+", and has to be (scope, key)",
			"stop the callers, remove double rows, then make PRIMARY KEY (scope, key)")
	case !valid:
		e.problem("the index of the primary key is invalid or deferred", "REINDEX TABLE CONCURRENTLY idem.records")
	}
	return nil
}

func collation(e *exam) error {
	wrong, err := e.texts(`SELECT a.attname || ' has ' || coalesce(quote_ident(l.collname), 'none') FROM pg_attribute a LEFT JOIN pg_collation l ON l.oid = a.attcollation
		WHERE a.attrelid = 'idem.records'::regclass AND a.attname IN ('scope', 'key') AND l.collname IS DISTINCT FROM 'C' ORDER BY a.attnum`)
	if err != nil || len(wrong) == 0 {
		return err
	}
	e.problem("the collation of scope and key is not C: "+strings.Join(wrong, ", ")+": an upgrade of the system may break the index, and keys may be taken for equal that are not",
		`ALTER TABLE idem.records ALTER scope TYPE text COLLATE "C", ALTER key TYPE text COLLATE "C"`)
	return nil
}

func unlogged(e *exam) error {
	var persistence string
	if err := e.one("SELECT relpersistence::text FROM pg_class WHERE oid = 'idem.records'::regclass", nil, &persistence); err != nil {
		return err
	}
	if persistence != "p" {
		e.problem("idem.records is not logged: a crash or a failover empties it, and every retry executes again", "ALTER TABLE idem.records SET LOGGED")
	}
	return nil
}

func indexes(e *exam) error {
	invalid, err := e.texts(`SELECT indexrelid::regclass::text FROM pg_index
		WHERE indrelid = 'idem.records'::regclass AND NOT (indisvalid AND indisready) AND NOT indisprimary ORDER BY 1`)
	if err != nil {
		return err
	}
	for _, name := range invalid {
		e.warn("the index "+name+" is invalid: it is written and never read", "DROP INDEX CONCURRENTLY "+name)
	}
	further, err := e.texts(`SELECT indexrelid::regclass::text FROM pg_index
		WHERE indrelid = 'idem.records'::regclass AND indisvalid AND NOT indisprimary ORDER BY 1`)
	if err != nil {
		return err
	}
	for _, name := range further {
		e.warn("the index "+name+" is not of idem: every first run has to write it, and completing a record may touch it",
			"DROP INDEX CONCURRENTLY "+name+", unless something needs it")
	}
	return nil
}

func triggers(e *exam) error {
	found, err := e.texts(`SELECT quote_ident(tgname) FROM pg_trigger
		WHERE tgrelid = 'idem.records'::regclass AND NOT tgisinternal AND tgenabled <> 'D' ORDER BY 1`)
	for _, name := range found {
		e.warn("the trigger "+name+" is on idem.records: it runs in every call, and may change or swallow a record", "DROP TRIGGER "+name+" ON idem.records, unless something needs it")
	}
	return err
}

func rules(e *exam) error {
	found, err := e.texts(`SELECT quote_ident(rulename) FROM pg_rewrite WHERE ev_class = 'idem.records'::regclass ORDER BY 1`)
	for _, name := range found {
		e.problem("the rule "+name+" is on idem.records: it rewrites what calls write", "DROP RULE "+name+" ON idem.records")
	}
	return err
}

func replicaIdentity(e *exam) error {
	var identity string
	var published bool
	err := e.one(`SELECT relreplident::text, EXISTS (SELECT FROM pg_publication_tables t JOIN pg_publication p ON p.pubname = t.pubname
			WHERE t.schemaname = 'idem' AND t.tablename = 'records' AND (p.pubupdate OR p.pubdelete))
		FROM pg_class WHERE oid = 'idem.records'::regclass`, nil, &identity, &published)
	if err != nil || !published {
		return err
	}
	if identity == "n" {
		e.problem("idem.records is published and has no replica identity: completing a record fails with SQLSTATE 55000",
			"ALTER TABLE idem.records REPLICA IDENTITY DEFAULT")
	}
	e.note("idem.records is published by logical replication: a subscriber has keys and stored responses, and gets them apart from their effects if those are not published with them",
		"publish the tables of the effects in the same publication, or take idem.records out of it")
	return nil
}
