package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

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

// columns looks for missing columns and for columns of another type. Further columns do no harm:
// the library names the columns that it uses.
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
// other collations changes with the libraries of the operating system, and an index in the old
// order no longer finds its keys.
func collation(e *exam) {
	found := e.attributes()
	for _, r := range e.relations {
		var wrong, alter []string
		for _, a := range found {
			if a.OID == r.OID && a.Type == "text" && a.Collation != `"C"` && r.Root && slices.Contains(r.expectation().keyColumns(), a.Name) {
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

// triggers looks for enabled triggers on the tables of idem. The triggers of idem partition get a
// finding of their own.
func triggers(e *exam) {
	var oid uint32
	var name string
	e.each(`SELECT tgrelid, quote_ident(tgname) FROM pg_trigger
		WHERE tgrelid = ANY ($1) AND NOT tgisinternal AND tgparentid = 0 AND tgenabled <> 'D' ORDER BY 2`, []any{e.oids()}, []any{&oid, &name}, func() {
		on := e.relation(oid).Name
		if e.isPartitioning(name, on) {
			return
		}
		e.warn("the trigger "+name+" is on "+on+": it runs in every call, and may change or suppress a row",
			"DROP TRIGGER "+name+" ON "+on+", unless something needs it")
	})
}

// isPartitioning reports whether idem partition created the trigger or rule on a table. For the
// main one it adds a finding.
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
	var oid uint32
	var name string
	const found = `SELECT ev_class, quote_ident(rulename) FROM pg_rewrite WHERE ev_class = ANY ($1) ORDER BY 2`
	e.each(found, []any{e.oids()}, []any{&oid, &name}, func() {
		on := e.relation(oid).Name
		if e.isPartitioning(name, on) {
			return
		}
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
