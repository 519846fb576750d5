// Package portability finds the server features that the statements of idem need, and the servers
// that refuse them. `make generate` writes the result to docs/portability.md and statements.md.
package portability

import (
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/tools/syntax"
)

// Need is a feature that some servers do not have.
type Need string

// The needs, by their names on the page.
const (
	TransactionLocks Need = "locks of a transaction"
	SessionLocks     Need = "locks of a session"
	LocalSettings    Need = "local settings"
	SessionSettings  Need = "settings of a session"
	Durability       Need = "synchronous_commit"
	LockTable        Need = "pg_locks"
	Sessions         Need = "pg_stat tables"
	Catalog          Need = "system tables"
	TransactionIDs   Need = "transaction ids"
	RowLocks         Need = "row locks"
	SkipLocked       Need = "SKIP LOCKED"
	OnConflict       Need = "ON CONFLICT"
	WritingWith      Need = "WITH that writes"
	Collation        Need = "COLLATE"
	Listening        Need = "LISTEN, NOTIFY"
	Division         Need = "integer division"
	Lateral          Need = "LATERAL, ROWS FROM"
	PlannerSettings  Need = "settings of the planner"
	RelationSizes    Need = "sizes of tables"
)

// Needs lists all needs in the order of the page.
var Needs = []Need{
	TransactionLocks, SessionLocks, LockTable, LocalSettings, SessionSettings, Durability, PlannerSettings, TransactionIDs, OnConflict, RowLocks, SkipLocked,
	WritingWith, Lateral, Collation, Division, Listening, Sessions, Catalog, RelationSizes,
}

// ofFunctions maps the names of functions to their needs.
var ofFunctions = map[string]Need{
	"pg_try_advisory_xact_lock": TransactionLocks, "pg_advisory_xact_lock": TransactionLocks,
	"pg_try_advisory_xact_lock_shared": TransactionLocks, "pg_advisory_xact_lock_shared": TransactionLocks,
	"pg_try_advisory_lock": SessionLocks, "pg_advisory_lock": SessionLocks, "pg_advisory_unlock": SessionLocks,
	"pg_try_advisory_lock_shared": SessionLocks, "pg_advisory_unlock_all": SessionLocks, "pg_advisory_unlock_shared": SessionLocks,
	"pg_current_xact_id": TransactionIDs, "pg_current_snapshot": TransactionIDs, "pg_snapshot_xmin": TransactionIDs, "pg_snapshot_xmax": TransactionIDs,
	"pg_visible_in_snapshot": TransactionIDs, "pg_current_xact_id_if_assigned": TransactionIDs, "age": TransactionIDs,
	"pg_notify": Listening, "pg_stat_get_dead_tuples": Sessions, "pg_current_wal_lsn": Sessions, "pg_wal_lsn_diff": Sessions,
	"pg_relation_size": RelationSizes, "pg_partition_tree": RelationSizes, "to_regclass": RelationSizes, "pg_total_relation_size": RelationSizes,
}

// ofSetting returns the need of changing a setting with set_config. local is the third argument of
// set_config.
func ofSetting(name string, local bool) Need {
	switch {
	case name == "synchronous_commit":
		return Durability
	case strings.HasPrefix(name, "enable_"), name == "jit", name == "plan_cache_mode":
		return PlannerSettings
	case local:
		return LocalSettings
	}
	return SessionSettings
}

type node = syntax.Node

// Of returns the needs of a statement in the order of Needs.
func Of(sql string) ([]Need, error) {
	tree, err := syntax.Parse(sql)
	if err != nil {
		return nil, err
	}
	found := map[Need]bool{}
	syntax.Each(tree, func(n node) { find(n, found) })
	var needs []Need
	for _, need := range Needs {
		if found[need] {
			needs = append(needs, need)
		}
	}
	// A need that is missing in Needs would silently not be reported.
	if len(needs) != len(found) {
		return nil, fmt.Errorf("a need is not among Needs: %v", found)
	}
	return needs, nil
}

// find adds the needs of one object of the syntax tree. The tree names the kind of a node in the
// key that holds it.
func find(n node, found map[Need]bool) {
	for kind, field := range n {
		inner, _ := field.(node)
		switch kind {
		case "FuncCall":
			call(inner, found)
		case "RangeVar":
			table(inner, found)
		case "LockingClause":
			found[RowLocks] = true
			if inner["waitPolicy"] == "LockWaitSkip" {
				found[SkipLocked] = true
			}
		case "onConflictClause":
			found[OnConflict] = true
		case "CommonTableExpr":
			// WITH x AS (INSERT ...) is a PostgreSQL extension; WITH x AS (SELECT ...) is not.
			for statement := range inner["ctequery"].(node) {
				if statement != "SelectStmt" {
					found[WritingWith] = true
				}
			}
		case "CollateClause":
			found[Collation] = true
		case "ListenStmt", "NotifyStmt":
			found[Listening] = true
		case "RangeSubselect", "RangeFunction":
			if inner["lateral"] == true || inner["is_rowsfrom"] == true {
				found[Lateral] = true
			}
		case "A_Expr":
			if name := syntax.Name(inner["name"]); name == "/" {
				found[Division] = true
			}
		}
	}
}

// call adds the need of a function call.
func call(n node, found map[Need]bool) {
	name := syntax.Name(n["funcname"])
	if need, ok := ofFunctions[name]; ok {
		found[need] = true
	}
	if args, _ := n["args"].([]any); name == "set_config" && len(args) == 3 {
		found[ofSetting(constant(args[0]), isTrue(args[2]))] = true
	}
}

// table adds the need of a reference to a system table.
func table(n node, found map[Need]bool) {
	name, _ := n["relname"].(string)
	switch {
	case n["schemaname"] != "pg_catalog":
	case name == "pg_locks":
		found[LockTable] = true
	case strings.HasPrefix(name, "pg_stat"):
		found[Sessions] = true
	default:
		found[Catalog] = true
	}
}

// constant returns the value of a string constant, or "" if n is something else.
func constant(n any) string {
	c, _ := n.(node)["A_Const"].(node)
	return syntax.Text(c["sval"])
}

// isTrue reports whether n is the constant true.
func isTrue(n any) bool {
	c, _ := n.(node)["A_Const"].(node)
	value, _ := c["boolval"].(node)
	return value["boolval"] == true
}

// RefusedBy returns the names of the servers that refuse at least one of the needs.
func RefusedBy(needs []Need) []string {
	var names []string
	for _, s := range Servers {
		if slices.ContainsFunc(needs, func(n Need) bool { return strings.HasPrefix(s.Has[n], "refused") }) {
			names = append(names, s.Name)
		}
	}
	return names
}
