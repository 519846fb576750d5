package doctor

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/migrations"
)

// schemaChecks compare the schema idem with the one that the migrations create. They also report
// triggers, rules and indexes that someone added, because they slow down or change every call.
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

// migrated compares the applied migrations with the migrations in this program. If migrations are
// missing, calls fail. If the schema has migrations that this program does not know, a newer
// release of the library works with it, but this program may judge the schema wrongly.
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
	// The migration tool goose adds a row each time it applies or undoes a migration, so the last
	// row of a version says whether the version is applied.
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

// without returns the elements of the first slice that the second slice does not contain.
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

// table looks for missing tables and sequences, and for relations of another kind under the name of
// a table. Other checks examine the tables that exist.
func table(e *exam) {
	if !e.hasTable {
		e.problem("there is no table idem.records in this database", "run idem migrate up, or check the address")
		return
	}
	const remedy = "run idem migrate up if the check migrations finds missing ones; otherwise stop all users of it, and restore it from a backup " +
		"or create it with the statements of package migrations"
	for _, t := range tables {
		switch r := e.root(t.name); {
		case r == nil:
			e.problem(fmt.Sprintf("there is no table idem.%s: its users fail, or %s", t.name, t.consequence), remedy)
		case r.Kind != "r" && r.Kind != "p":
			e.problem("idem."+t.name+" is not a table (relkind "+r.Kind+")", "find out who created it; idem migrate down and up create the table")
		}
	}
	there := e.texts(`SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'idem' AND c.relkind = 'S'`)
	for _, name := range slices.Sorted(maps.Keys(sequences)) {
		of := sequences[name]
		if !slices.Contains(there, name) && (of == "" || e.root(of) != nil) {
			e.problem("there is no sequence idem."+name+": its users fail", remedy)
		}
	}
}

// attribute is a column of a relation.
type attribute struct {
	OID       uint32
	Name      string
	Type      string
	Collation string // empty if the type has no collation
}

// attributes returns the columns of all relations of idem.
func (e *exam) attributes() []attribute {
	return structs[attribute](e, `SELECT a.attrelid, a.attname::text, format_type(a.atttypid, a.atttypmod), coalesce(quote_ident(l.collname), '')
		FROM pg_attribute a LEFT JOIN pg_collation l ON l.oid = a.attcollation
		WHERE a.attrelid = ANY ($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum`, e.oids())
}

// columns looks for missing columns and for columns of another type. Additional columns do no harm,
// because the library names the columns that it uses.
func columns(e *exam) {
	found := e.attributes()
	for _, r := range e.relations {
		if !r.Root {
			continue
		}
		for _, want := range strings.Split(r.expectation().columns, ", ") {
			name, kind, _ := strings.Cut(want, " ")
			is := "is missing"
			if at := slices.IndexFunc(found, func(a attribute) bool { return a.OID == r.OID && a.Name == name }); at >= 0 {
				is = "is of the type " + found[at].Type
			}
			if is != "is of the type "+kind {
				e.problem(fmt.Sprintf("the column %s of %s %s, and must be %s", name, r.Name, is, kind),
					"run idem migrate up; if it was altered by hand, alter it back")
			}
		}
	}
}

// collation looks for text columns of a primary key with a collation other than C. The order of
// other collations may change when the operating system is upgraded. An index in the old order then
// no longer finds its keys.
func collation(e *exam) {
	found := e.attributes()
	for _, r := range e.relations {
		var wrong, alter []string
		for _, a := range found {
			if a.OID == r.OID && a.Type == "text" && a.Collation != `"C"` && r.Root && slices.Contains(strings.Split(r.expectation().key, ", "), a.Name) {
				wrong = append(wrong, a.Name+" has "+a.Collation)
				alter = append(alter, fmt.Sprintf(`ALTER %s TYPE text COLLATE "C"`, a.Name))
			}
		}
		if len(wrong) > 0 {
			e.problem("the collation of the primary key of "+r.Name+" is not C: "+strings.Join(wrong, ", ")+
				": an upgrade of the operating system may corrupt the index, and different keys may compare as equal",
				"ALTER TABLE "+r.Name+" "+strings.Join(alter, ", "))
		}
	}
}

// unlogged looks for UNLOGGED tables, which a crash or a failover empties.
func unlogged(e *exam) {
	for _, r := range e.leaves() {
		if !r.Logged {
			consequence := r.expectation().consequence
			if r.Table == "records" {
				consequence = "every retry executes again"
			}
			e.problem(fmt.Sprintf("%s is not logged: a crash or a failover empties it, and %s", r.Name, consequence),
				"ALTER TABLE "+r.Name+" SET LOGGED")
		}
	}
}

// triggers looks for enabled triggers on the tables of idem. The triggers that the command idem
// partition creates get a finding of their own.
func triggers(e *exam) {
	e.eachForeign(`SELECT tgrelid, quote_ident(tgname) FROM pg_trigger
		WHERE tgrelid = ANY ($1) AND NOT tgisinternal AND tgparentid = 0 AND tgenabled <> 'D' ORDER BY 2`, func(name, on string) {
		e.warn("the trigger "+name+" is on "+on+": it runs in every call, and may change or suppress a row",
			"DROP TRIGGER "+name+" ON "+on+", unless something needs it")
	})
}

// eachForeign calls the function found for each trigger or rule that the command idem partition did
// not create. The query sql returns the OID of the table and the name of each trigger or rule.
func (e *exam) eachForeign(sql string, found func(name, on string)) {
	var oid uint32
	var name string
	e.each(sql, []any{e.oids()}, []any{&oid, &name}, func() {
		if on := e.relation(oid).Name; !e.isPartitioning(name, on) {
			found(name, on)
		}
	})
}

// isPartitioning reports whether the command idem partition created the trigger or rule. For the
// main trigger, idem_parted, it also adds a finding.
func (e *exam) isPartitioning(name, on string) bool {
	if name == "idem_parted" {
		_, table, _ := strings.Cut(on, ".")
		e.warn("idem partition is copying "+on+", or was interrupted: each write happens twice",
			"idem partition "+table+" continues, and idem partition --abort "+table+" undoes it")
	}
	return strings.HasPrefix(name, "idem_parted")
}

// rules looks for rewrite rules on the tables of idem.
func rules(e *exam) {
	e.eachForeign("SELECT ev_class, quote_ident(rulename) FROM pg_rewrite WHERE ev_class = ANY ($1) ORDER BY 2", func(name, on string) {
		e.problem("the rule "+name+" is on "+on+": it rewrites the statements of calls", "DROP RULE "+name+" ON "+on)
	})
}

// replicaIdentity looks for published tables without a replica identity, on which UPDATE and DELETE
// fail. It also notes if idem.records is published. Publications of inserts only are fine: Debezium
// reads the outbox that way.
func replicaIdentity(e *exam) {
	published := collect(e, pgx.RowTo[uint32], `SELECT DISTINCT c.oid FROM pg_publication_tables t JOIN pg_publication p ON p.pubname = t.pubname
		JOIN pg_namespace n ON n.nspname = t.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
		WHERE c.oid = ANY ($1) AND (p.pubupdate OR p.pubdelete) ORDER BY 1`, e.oids())
	noted := false
	for _, oid := range published {
		r := e.relation(oid)
		if r.Identity == "n" {
			e.problem(r.Name+" is published and has no replica identity: UPDATE and DELETE fail with SQLSTATE 55000",
				"ALTER TABLE "+r.Name+" REPLICA IDENTITY DEFAULT")
		}
		if r.Table == "records" && !noted {
			noted = true
			e.note("idem.records is published by logical replication: a subscriber gets keys and stored responses, "+
				"and without their effects unless the same publication has those tables",
				"publish the tables of the effects in the same publication, or remove idem.records from it")
		}
	}
}

// foundIndex is a row of the catalog pg_index.
type foundIndex struct {
	On         uint32
	Name       string // schema.index
	Short      string
	Definition string // the text of pg_get_indexdef after USING
	Constraint string // the definition of the constraint, for a primary key
	Primary    bool
	Valid      bool // valid, ready, and not deferrable
	Inherited  bool // it is a part of an index of the partitioned table
}

// indexes returns all indexes of the tables of idem and of their partitions.
func (e *exam) indexes() []foundIndex {
	return structs[foundIndex](e, `
		SELECT i.indrelid, format('%I.%I', n.nspname, c.relname), c.relname::text, substring(pg_get_indexdef(i.indexrelid) FROM ' USING (.*)$'),
			coalesce(pg_get_constraintdef(k.oid), ''), i.indisprimary, i.indisvalid AND i.indisready AND (i.indimmediate OR NOT i.indisprimary), c.relispartition
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype = 'p'
		WHERE i.indrelid = ANY ($1) ORDER BY array_position($1, i.indrelid), 2`, e.oids())
}

// primaryKey looks for a primary key that is missing, invalid or on other columns. The guarantee of
// idem rests on the primary key of idem.records: without it, two transactions can claim one key.
func primaryKey(e *exam) {
	const remedy = "stop all users of the table, remove duplicate rows, then "
	found := e.indexes()
	for _, r := range e.relations {
		t := r.expectation()
		want, consequence := "PRIMARY KEY ("+t.key+")", t.consequence
		if r.Table == "records" {
			consequence = "a key may execute twice"
		}
		at := slices.IndexFunc(found, func(i foundIndex) bool { return i.On == r.OID && i.Primary })
		switch {
		case r.Kind != "r" && r.Kind != "p": // a view, which the check "table" reports
		case at < 0 && !r.Root: // the finding for the partitioned table covers its partitions
		case at < 0:
			e.problem(r.Name+" has no primary key: "+consequence, remedy+"ALTER TABLE "+r.Name+" ADD "+want)
		case found[at].Constraint != want && r.Root:
			e.problem("the primary key of "+r.Name+" is "+found[at].Constraint+", and must be ("+t.key+")", remedy+"make "+want)
		case !found[at].Valid:
			e.problem("the index of the primary key of "+r.Name+" is invalid or deferred", "REINDEX TABLE CONCURRENTLY "+r.Name)
		}
	}
}

// indexes looks for missing indexes, invalid indexes and indexes that the migrations did not
// create.
func indexes(e *exam) {
	found := e.indexes()
	for _, r := range e.relations {
		ours := r.expectation().indexes
		if r.Root {
			e.missingIndexes(&r, found)
		}
		for _, i := range found {
			if i.On != r.OID || i.Primary {
				continue
			}
			named := slices.ContainsFunc(ours, func(of string) bool { name, _ := index(of); return name == i.Short })
			e.furtherIndex(&r, i, named || i.Inherited)
		}
	}
}

// missingIndexes looks for indexes that the migrations create and that r does not have. An index
// with the same definition under another name counts as present.
func (e *exam) missingIndexes(r *relation, found []foundIndex) {
	for _, of := range r.expectation().indexes {
		name, definition := index(of)
		if !slices.ContainsFunc(found, func(i foundIndex) bool { return i.On == r.OID && i.Definition == definition }) {
			method, rest, _ := strings.Cut(definition, " ")
			e.problem(fmt.Sprintf("the index %s of %s is missing, or has another definition: queries that need it scan the whole table", name, r.Name),
				fmt.Sprintf("DROP INDEX CONCURRENTLY IF EXISTS idem.%[1]s; CREATE INDEX CONCURRENTLY %[1]s ON %[2]s USING %[3]s %[4]s", name, r.Name, method, rest))
		}
	}
}

// furtherIndex examines an index other than the primary key. The parameter ours says whether the
// migrations created the index.
func (e *exam) furtherIndex(r *relation, i foundIndex, ours bool) {
	switch {
	case !i.Valid && ours:
		e.problem("the index "+i.Name+" is invalid: it is written and never read, and queries that need it scan the whole table",
			"REINDEX INDEX CONCURRENTLY "+i.Name)
	case !i.Valid:
		e.warn("the index "+i.Name+" is invalid: it is written and never read", "DROP INDEX CONCURRENTLY "+i.Name)
	case ours:
	case r.Table == "records":
		e.warn("the index "+i.Name+" does not belong to idem: every first execution writes it, and completing a record may too",
			"DROP INDEX CONCURRENTLY "+i.Name+", unless something needs it")
	default:
		e.note("the index "+i.Name+" does not belong to idem: every change of "+r.Name+" writes it", "DROP INDEX CONCURRENTLY "+i.Name+", unless something needs it")
	}
}

// sequenceUse is a sequence together with the query for its highest number in use.
type sequenceUse struct {
	sequence    string
	what        string // what the numbers identify
	highest     string // an indexed query for the highest number in use
	reads       []string
	level       Level
	consequence string // the consequence of a number that is handed out twice
}

// sequenceUses are the sequences that sequenceBehind examines. No index covers all numbers of
// instances and of delayed messages. For these two sequences the query reads only the thousand rows
// that are due first.
var sequenceUses = []sequenceUse{
	{
		sequence: "outbox_seq_seq", what: "sequence numbers in idem.outbox", level: Problem, reads: []string{"outbox"},
		highest:     `SELECT coalesce(greatest((SELECT max(seq) FROM idem.outbox WHERE NOT held), (SELECT max(seq) FROM idem.outbox WHERE held)), 0)`,
		consequence: "a new message gets a lower number than older messages of its key and is published before them, or fails with SQLSTATE 23505",
	},
	{
		sequence: "delayed_seq_seq", what: "sequence numbers in idem.delayed", level: Problem, reads: []string{"delayed"},
		highest:     `SELECT coalesce((SELECT max(seq) FROM (SELECT seq FROM idem.delayed ORDER BY not_before LIMIT 1000) AS few), 0)`,
		consequence: "among messages of one key that are due at the same time, a later one may be published first, or fails with SQLSTATE 23505",
	},
	{
		sequence: "instances", what: "numbers of instances", level: Warning, reads: []string{"operations", "relays", "leases"},
		highest: `SELECT coalesce(greatest((SELECT max(instance) FROM idem.relays), (SELECT max(instance) FROM idem.leases),
			(SELECT max(owner) FROM (SELECT owner FROM idem.operations WHERE state = 'running' ORDER BY wake_at LIMIT 1000) AS few)), 0)::int8`,
		consequence: "a new process gets the number of a former one and counts as the owner of its operations, whose definitions it may not have",
	},
}

// sequenceBehind looks for sequences whose next numbers are already in use. Logical replication
// copies rows but not sequences, so a subscriber has this fault if it becomes the primary database.
func sequenceBehind(e *exam) {
	for i := range sequenceUses {
		n := &sequenceUses[i]
		if !e.canRead(n.reads) {
			continue
		}
		var highest int64
		// Read the rows before the sequence. In the other order, a row that is inserted in between
		// would have a number beyond the sequence as it was read.
		e.one(n.highest, nil, &highest)
		last, ok := e.last(n.sequence)
		if ok && last < highest {
			e.add(n.level, fmt.Sprintf("%s go up to %d, and the sequence idem.%s is at %d: %s", n.what, highest, n.sequence, last, n.consequence),
				setSequence(n.sequence, highest))
		}
	}
}

// last returns the last number of a sequence, or 0 if it was never used. It reports ok = false if
// the sequence does not exist, or if the connected role cannot read it. In the latter case last
// also adds a finding.
func (e *exam) last(sequence string) (last int64, ok bool) {
	var value *int64
	var there, readable bool
	e.one(`SELECT c.oid IS NOT NULL, coalesce(has_sequence_privilege(c.oid, 'USAGE, SELECT'), false),
			CASE WHEN has_sequence_privilege(c.oid, 'USAGE, SELECT') THEN pg_sequence_last_value(c.oid) END
		FROM (SELECT 1) AS one LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'idem')
			ON c.relkind = 'S' AND c.relname = $1`, []any{sequence}, &there, &readable, &value)
	switch {
	case !there: // the check "table" reports a missing sequence
		return 0, false
	case !readable:
		e.unknown("not checked: this role may not read the sequence idem."+sequence, "GRANT SELECT ON SEQUENCE idem."+sequence+" TO "+e.self)
		return 0, false
	case value != nil:
		last = *value
	}
	return last, true
}

// setSequence returns the remedy for a sequence that is behind: a statement that sets it to the
// number "to" unless it is already beyond.
func setSequence(sequence string, to int64) string {
	return fmt.Sprintf("before anything writes here: SELECT setval('idem.%[1]s', %[2]d) FROM idem.%[1]s WHERE last_value < %[2]d", sequence, to)
}
