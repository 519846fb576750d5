package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// foundIndex is a row of the catalog pg_index.
type foundIndex struct {
	On         uint32
	Name       string // schema.index
	Short      string
	Definition string // the text of pg_get_indexdef after USING
	Constraint string // the definition of the constraint, for a primary key
	Primary    bool
	Valid      bool // valid, ready, and not deferrable
	Inherited  bool // it belongs to an index of a partitioned table
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
	found := e.indexes()
	for _, r := range e.relations {
		e.primaryKeyOf(&r, found)
	}
}

// primaryKeyOf adds the finding about the primary key of one relation. A view has none, and the
// check table reports it.
func (e *exam) primaryKeyOf(r *relation, found []foundIndex) {
	t := r.expectation()
	want := "PRIMARY KEY (" + t.key + ")"
	consequence := t.consequence
	if r.Table == "records" {
		consequence = "a key may execute twice"
	}
	const remedy = "stop all users of the table, remove duplicate rows, then "
	at := slices.IndexFunc(found, func(i foundIndex) bool { return i.On == r.OID && i.Primary })
	switch {
	case r.Kind != "r" && r.Kind != "p":
	case at < 0 && !r.Root: // the finding for the partitioned table covers its partitions
	case at < 0:
		e.problem(r.Name+" has no primary key: "+consequence, remedy+"ALTER TABLE "+r.Name+" ADD "+want)
	case found[at].Constraint != want && r.Root:
		e.problem("the primary key of "+r.Name+" is "+found[at].Constraint+", and must be ("+t.key+")", remedy+"make "+want)
	case !found[at].Valid:
		e.problem("the index of the primary key of "+r.Name+" is invalid or deferred", "REINDEX TABLE CONCURRENTLY "+r.Name)
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

// missingIndexes looks for indexes of the migrations that r lacks. An index with the same
// definition under another name counts as present.
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
