package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// accessChecks look for privileges that the role of the program lacks, and for privileges that
// other roles should not have.
var accessChecks = []check{
	{name: "privileges", run: privileges},
	{name: "packages", run: packages},
	{name: "public-access", run: publicAccess},
	{name: "row-security", run: rowSecurity},
}

// use is a part of the library with the privileges that it needs. The privileges are those of the
// statements in docs/operate.md. A program may use only some parts, and nothing in the database
// says which. So the doctor guesses from the privileges in signs: a role that may update messages,
// for example, is examined as the role of a relay.
type use struct {
	name  string
	needs []grant
	signs []grant // a role with any of these is assumed to use this part, and must have all of needs

	purges bool // package purge deletes from partitions by name
}

// grant is a list of privileges on a table or on the sequence instances. A privilege may name
// columns.
type grant struct {
	on         string
	privileges []string
}

// on returns a grant. Its short name keeps the list of uses readable.
func on(table string, privileges ...string) grant { return grant{table, privileges} }

var (
	// calls has the privileges that every role needs.
	calls = use{name: "a call", needs: []grant{on("records", "SELECT", "INSERT", "UPDATE")}}

	optionalUses = []use{
		{
			name: "package operation",
			needs: []grant{
				on("operations", "SELECT", "INSERT", "UPDATE"), on("steps", "SELECT", "INSERT", "UPDATE"), on("signals", "SELECT", "INSERT", "UPDATE"),
				on("leases", "SELECT", "INSERT", "UPDATE", "DELETE"), on("instances", "USAGE"),
			},
			signs: []grant{on("operations", "INSERT"), on("steps", "INSERT"), on("signals", "INSERT")},
		}, {
			name:  "package inbox",
			needs: []grant{on("inbox", "SELECT", "INSERT", "UPDATE", "DELETE"), on("dead_letters", "SELECT", "INSERT", "UPDATE", "DELETE")},
			signs: []grant{on("inbox", "INSERT", "UPDATE")},
		}, {
			name: "outbox.Add", needs: []grant{on("outbox", "INSERT")},
		}, {
			name: "outbox.Add of delayed messages", needs: []grant{on("outbox", "INSERT"), on("delayed", "INSERT")}, signs: []grant{on("delayed", "INSERT")},
		}, {
			name: "outbox.Relay",
			needs: []grant{
				on("outbox", "SELECT", "INSERT", "UPDATE", "DELETE"), on("relays", "SELECT", "INSERT", "UPDATE", "DELETE"),
				on("relay_topics", "SELECT", "INSERT", "UPDATE", "DELETE"), on("delayed", "SELECT", "DELETE"),
				on("leases", "SELECT", "INSERT", "UPDATE", "DELETE"), on("dead_letters", "SELECT", "INSERT", "UPDATE", "DELETE"), on("instances", "USAGE"),
			},
			signs: []grant{on("relays", "INSERT", "UPDATE"), on("outbox", "UPDATE", "DELETE")},
		}, {
			name: "a relay that keeps what was published", needs: []grant{on("published", "SELECT", "INSERT")}, signs: []grant{on("published", "INSERT")},
		}, {
			name: "retry, cancel, resolve, redrive, drop and forget", needs: []grant{on("audit", "INSERT")},
		}, {
			name: "package purge", purges: true,
			needs: []grant{
				on("sweeps", "SELECT", "INSERT", "UPDATE"),
				on("records", "DELETE", "SELECT (ctid, state, expires_at)", "UPDATE (expires_at)"),
				on("operations", "DELETE", "SELECT (ctid, id, state, ended_at)", "UPDATE (ended_at)"),
				on("steps", "DELETE", "SELECT (ctid, operation_id)"), on("signals", "DELETE", "SELECT (ctid, operation_id)"),
				on("inbox", "DELETE", "SELECT (ctid, expires_at)", "UPDATE (expires_at)"),
				on("published", "DELETE", "SELECT (ctid, expires_at)", "UPDATE (expires_at)"),
				on("audit", "DELETE", "SELECT (ctid, at)", "UPDATE (at)"),
			},
			signs: []grant{on("records", "DELETE"), on("sweeps", "INSERT", "UPDATE")},
		},
	}
)

// privileges looks for missing privileges. Every role needs the privileges of a call. A role that
// has one of the signs of an optional use must have all privileges that this use needs.
func privileges(e *exam) {
	e.missingFor(calls)
	for _, u := range optionalUses {
		if e.isUsedByRole(u) {
			e.missingFor(u)
		}
	}
}

// missingFor adds a problem if the role lacks privileges for u.
func (e *exam) missingFor(u use) {
	if missing := e.missing(u); len(missing) > 0 {
		e.problem(fmt.Sprintf("the role %s lacks %s, which %s needs", e.role, strings.Join(missing, ", "), u.name),
			grantOf(e.role, missing)+"; or examine another role with --role")
	}
}

// isUsedByRole reports whether the role has one of the privileges u.signs on an existing table.
func (e *exam) isUsedByRole(u use) bool {
	for _, sign := range u.signs {
		for _, privilege := range sign.privileges {
			if len(e.missing(use{needs: []grant{on(sign.on, privilege)}})) == 0 {
				return e.root(sign.on) != nil
			}
		}
	}
	return false
}

// packages notes the optional uses for which the role has no sign and lacks privileges. The doctor
// cannot know whether the program needs them.
func packages(e *exam) {
	var lacking, remedy []string
	for _, u := range optionalUses {
		if missing := e.missing(u); len(missing) > 0 && !e.isUsedByRole(u) {
			lacking = append(lacking, u.name)
			remedy = append(remedy, grantOf(e.role, missing))
		}
	}
	if len(lacking) > 0 {
		e.note(fmt.Sprintf("the role %s lacks privileges for %s: it needs them only if the program uses these parts", e.role, strings.Join(lacking, ", ")),
			strings.Join(remedy, "; "))
	}
}

// missing returns the privileges of u that the role lacks, each as "PRIVILEGE on OBJECT". A
// privilege on columns is checked column by column.
func (e *exam) missing(u use) []string {
	var oids []uint32
	var privileges, columns, texts []string
	for _, need := range u.needs {
		for _, r := range e.neededOf(u, need.on) {
			for _, privilege := range need.privileges {
				// "SELECT (a, b)" is checked for each column, "SELECT" for the table.
				kind, listed, _ := strings.Cut(strings.TrimSuffix(privilege, ")"), " (")
				for _, column := range strings.Split(listed, ", ") {
					oids, privileges, columns = append(oids, r.OID), append(privileges, kind), append(columns, column)
					texts = append(texts, privilege+" on "+r.Name)
				}
			}
		}
	}
	return slices.Compact(e.texts(`
		SELECT 'USAGE on schema idem' FROM pg_namespace n WHERE n.nspname = 'idem' AND NOT has_schema_privilege($1, n.oid, 'USAGE')
		UNION ALL
		SELECT 'USAGE on SEQUENCE idem.instances' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE $6 AND n.nspname = 'idem' AND c.relname = 'instances' AND c.relkind = 'S' AND NOT has_sequence_privilege($1, c.oid, 'USAGE')
		UNION ALL
		SELECT text FROM unnest($2::oid[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY AS w (oid, privilege, attribute, text, n)
		WHERE NOT CASE WHEN attribute = '' THEN has_table_privilege($1, oid, privilege) ELSE coalesce(has_column_privilege($1, oid, attribute, privilege), false) END`,
		e.role, oids, privileges, columns, texts, slices.ContainsFunc(u.needs, func(g grant) bool { return g.on == "instances" })))
}

// neededOf returns the relations of table on which u needs privileges. Purge deletes from each
// partition by name, so it needs privileges on partitions too. Other uses need privileges on the
// table alone. Purge needs privileges on records and sweeps even if they are empty, and on any
// other table only if it has had rows.
func (e *exam) neededOf(u use, table string) (found []relation) {
	used := false
	for _, r := range e.relations {
		if r.Table == table && (r.Root || u.purges) {
			found = append(found, r)
			used = used || r.Used
		}
	}
	if u.purges && !used && !slices.Contains([]string{"records", "sweeps"}, table) {
		return nil
	}
	return found
}

// grantOf returns GRANT statements for missing, whose elements have the form "PRIVILEGE on OBJECT".
// Privileges on one object go into one statement.
func grantOf(role string, missing []string) string {
	var objects []string
	privileges := map[string][]string{}
	for _, m := range missing {
		privilege, object, _ := strings.Cut(m, " on ")
		if privileges[object] == nil {
			objects = append(objects, object)
		}
		privileges[object] = append(privileges[object], privilege)
	}
	var statements []string
	for _, object := range objects {
		written := strings.Replace(object, "schema ", "SCHEMA ", 1)
		statements = append(statements, fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(privileges[object], ", "), written, pgx.Identifier{role}.Sanitize()))
	}
	return strings.Join(statements, "; ")
}

// publicAccess looks for tables on which PUBLIC has privileges. If relacl in the catalog is NULL,
// the table has the default privileges, which acldefault returns.
func publicAccess(e *exam) {
	var oid uint32
	var granted string
	e.each(`
		SELECT c.oid, string_agg(DISTINCT acl.privilege_type, ', ' ORDER BY acl.privilege_type)
		FROM pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) acl
		WHERE c.oid = ANY ($1) AND acl.grantee = 0 GROUP BY c.oid ORDER BY array_position($1, c.oid)`, []any{e.oids()}, []any{&oid, &granted}, func() {
		r := e.relation(oid)
		what := "any role can read or change its rows"
		if r.Table == "records" {
			what = "any role can read keys and stored responses"
		}
		e.warn(fmt.Sprintf("every role has %s on %s: %s", granted, r.Name, what),
			"REVOKE ALL ON "+r.Name+" FROM PUBLIC, and grant it to the roles that call and purge")
	})
}

// rowSecurity looks for row-level security, which hides records from the library if its policies
// apply to the role.
func rowSecurity(e *exam) {
	for _, r := range e.relations {
		switch {
		case !r.RowSecurity:
		case !r.Applies:
			e.note(fmt.Sprintf("row-level security is on for %s, and does not apply to the role %s", r.Name, e.role), "nothing to do for this role")
		default:
			hidden := "the library fails on a row that a policy hides, or does not find it"
			if r.Table == "records" {
				hidden = "a claim of a key whose record is hidden fails, or waits"
			}
			e.problem(fmt.Sprintf("row-level security is on for %s and applies to the role %s: %s", r.Name, e.role, hidden),
				"ALTER TABLE "+r.Name+" DISABLE ROW LEVEL SECURITY, and separate tenants by scope")
		}
	}
}
