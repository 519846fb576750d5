package doctor

import (
	"fmt"
	"strings"
)

var accessChecks = []check{
	{name: "privileges", run: privileges},
	{name: "public-access", run: publicAccess},
	{name: "row-security", run: rowSecurity},
}

func privileges(e *exam) error {
	// by oid, because a role without USAGE may not look the name up
	missing, err := e.texts(`
		SELECT wanted.privilege FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,
		LATERAL (VALUES ('USAGE on schema idem', has_schema_privilege($1, n.oid, 'USAGE')),
			('SELECT on idem.records', has_table_privilege($1, c.oid, 'SELECT')),
			('INSERT on idem.records', has_table_privilege($1, c.oid, 'INSERT')),
			('UPDATE on idem.records', has_table_privilege($1, c.oid, 'UPDATE'))) AS wanted (privilege, granted)
		WHERE n.nspname = 'idem' AND c.relname = 'records' AND NOT wanted.granted`, e.role)
	if err != nil || len(missing) == 0 {
		return err
	}
	e.problem(fmt.Sprintf("the role %s lacks %s, which a call needs", e.role, strings.Join(missing, ", ")),
		fmt.Sprintf("GRANT USAGE ON SCHEMA idem TO %[1]q; GRANT SELECT, INSERT, UPDATE ON idem.records TO %[1]q; or look at another role with --role", e.role))
	return nil
}

func publicAccess(e *exam) error {
	granted, err := e.texts(`
		SELECT DISTINCT acl.privilege_type FROM pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) acl
		WHERE c.oid = 'idem.records'::regclass AND acl.grantee = 0 ORDER BY 1`)
	if err != nil || len(granted) == 0 {
		return err
	}
	e.warn(fmt.Sprintf("every role has %s on idem.records: keys and stored responses are there to be read", strings.Join(granted, ", ")),
		"REVOKE ALL ON idem.records FROM PUBLIC, and grant it to the roles that call and purge")
	return nil
}

func rowSecurity(e *exam) error {
	var enabled, forced, bypass bool
	err := e.one(`SELECT relrowsecurity, relforcerowsecurity,
		coalesce((SELECT rolsuper OR rolbypassrls OR (pg_has_role(oid, c.relowner, 'usage') AND NOT relforcerowsecurity) FROM pg_roles WHERE rolname = $1), false)
		FROM pg_class c WHERE oid = 'idem.records'::regclass`, []any{e.role}, &enabled, &forced, &bypass)
	if err != nil || !enabled {
		return err
	}
	if bypass {
		e.note(fmt.Sprintf("row-level security is on for idem.records, and does not apply to the role %s", e.role), "nothing to do for this role")
		return nil
	}
	e.problem(fmt.Sprintf("row-level security is on for idem.records and applies to the role %s: a record that a policy hides is a claim that fails, or waits", e.role),
		"ALTER TABLE idem.records DISABLE ROW LEVEL SECURITY, and keep tenants apart by scope")
	return nil
}
