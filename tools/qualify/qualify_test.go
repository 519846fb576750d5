package qualify

import "testing"

func TestAStatementIsQualified(t *testing.T) {
	t.Parallel()
	types := map[int]string{1: "text", 2: "interval", 3: "int4", 4: "text[]"}
	for plain, want := range map[string]string{
		"SELECT 1": "SELECT 1",
		"SELECT r.a FROM idem.records r WHERE r.scope = $1": "SELECT r.a FROM idem.records r WHERE r.scope OPERATOR(pg_catalog.=) $1::pg_catalog.text",
		"SELECT count(*)": "SELECT pg_catalog.count(*)",
		"SELECT pg_catalog.count(*), idem.f(1), coalesce(1, 2), least(1, 2)": "SELECT pg_catalog.count(*), idem.f(1), coalesce(1, 2), least(1, 2)",
		"SELECT substring('abc', 2, 1)":                                      "SELECT pg_catalog.substring('abc', 2, 1)",
		"SELECT extract(epoch FROM now())":                                   "SELECT extract(epoch FROM pg_catalog.now())",
		"SELECT '1 day'::interval, x::text[] FROM idem.t":                    "SELECT '1 day'::pg_catalog.interval, x::pg_catalog.text[] FROM idem.t",
		"SELECT $1::uuid, ($1)::uuid":                                        "SELECT $1::pg_catalog.uuid, ($1)::pg_catalog.uuid",
		"SELECT CAST($1 AS text)":                                            "SELECT CAST($1 AS pg_catalog.text)",
		"SELECT array_length($4, 1)":                                         "SELECT pg_catalog.array_length($4::pg_catalog.text[], 1)",
		"SELECT relname FROM pg_class":                                       "SELECT relname FROM pg_catalog.pg_class",
		"WITH c AS (SELECT 1 AS n) SELECT n FROM c":                          "WITH c AS (SELECT 1 AS n) SELECT n FROM c",
		`SELECT a FROM idem.t ORDER BY a COLLATE "C"`:                        `SELECT a FROM idem.t ORDER BY a COLLATE pg_catalog."C"`,
		"SELECT 1 != 2":                                                      "SELECT 1 OPERATOR(pg_catalog.<>) 2",
		"SELECT a = ANY (b) FROM idem.t":                                     "SELECT a OPERATOR(pg_catalog.=) ANY (b) FROM idem.t",
		"SELECT a <> ALL (SELECT 1) FROM idem.t":                             "SELECT a OPERATOR(pg_catalog.<>) ALL (SELECT 1) FROM idem.t",
		"SELECT a OPERATOR(pg_catalog.=) b FROM idem.t":                      "SELECT a OPERATOR(pg_catalog.=) b FROM idem.t",
		// Operands that were bound by precedence get parentheses.
		"SELECT 1 + 2 * 3":                                    "SELECT 1 OPERATOR(pg_catalog.+) (2 OPERATOR(pg_catalog.*) 3)",
		"SELECT 1 * 2 + 3":                                    "SELECT 1 OPERATOR(pg_catalog.*) 2 OPERATOR(pg_catalog.+) 3",
		"SELECT (1 + 2) * 3":                                  "SELECT (1 OPERATOR(pg_catalog.+) 2) OPERATOR(pg_catalog.*) 3",
		"SELECT 1 - (2 - 3)":                                  "SELECT 1 OPERATOR(pg_catalog.-) (2 OPERATOR(pg_catalog.-) 3)",
		"SELECT 1 - 2 - 3":                                    "SELECT 1 OPERATOR(pg_catalog.-) 2 OPERATOR(pg_catalog.-) 3",
		"SELECT 1 < 2 + 3 * 4":                                "SELECT 1 OPERATOR(pg_catalog.<) (2 OPERATOR(pg_catalog.+) (3 OPERATOR(pg_catalog.*) 4))",
		"SELECT 1 + (2) * 3 < 4":                              "SELECT 1 OPERATOR(pg_catalog.+) ((2) OPERATOR(pg_catalog.*) 3) OPERATOR(pg_catalog.<) 4",
		"SELECT a < now() - $2 AND b IS NULL FROM idem.t":     "SELECT a OPERATOR(pg_catalog.<) (pg_catalog.now() OPERATOR(pg_catalog.-) $2::pg_catalog.interval) AND b IS NULL FROM idem.t",
		"SELECT 1 < 2 + CASE WHEN 1 = 2 THEN 3 ELSE 4 END, 5": "SELECT 1 OPERATOR(pg_catalog.<) (2 OPERATOR(pg_catalog.+) CASE WHEN 1 OPERATOR(pg_catalog.=) 2 THEN 3 ELSE 4 END), 5",
		"SELECT CASE WHEN 1 < 2 * 3 THEN 4 END":               "SELECT CASE WHEN 1 OPERATOR(pg_catalog.<) (2 OPERATOR(pg_catalog.*) 3) THEN 4 END",
		"SELECT 1 < 2 + (SELECT 3) -- why\n, 4":               "SELECT 1 OPERATOR(pg_catalog.<) (2 OPERATOR(pg_catalog.+) (SELECT 3)) -- why\n, 4",
		"SELECT -a + 2 FROM idem.t":                           "SELECT OPERATOR(pg_catalog.-)a OPERATOR(pg_catalog.+) 2 FROM idem.t",
		"SELECT 1 < - a FROM idem.t":                          "SELECT 1 OPERATOR(pg_catalog.<) (OPERATOR(pg_catalog.-) a) FROM idem.t",
		"SELECT 2 > 1 + 'x'::int4::int8":                      "SELECT 2 OPERATOR(pg_catalog.>) (1 OPERATOR(pg_catalog.+) 'x'::pg_catalog.int4::pg_catalog.int8)",
		"SELECT 1 WHERE NOT 1 = 2 * 3":                        "SELECT 1 WHERE NOT 1 OPERATOR(pg_catalog.=) (2 OPERATOR(pg_catalog.*) 3)",
		"SELECT 1 FROM idem.t LIMIT 1 + 2 * 3":                "SELECT 1 FROM idem.t LIMIT 1 OPERATOR(pg_catalog.+) (2 OPERATOR(pg_catalog.*) 3)",
		"UPDATE idem.t SET a = b - c * $3 WHERE d":            "UPDATE idem.t SET a = b OPERATOR(pg_catalog.-) (c OPERATOR(pg_catalog.*) $3::pg_catalog.int4) WHERE d",
	} {
		got, err := Statement(plain, types)
		if err != nil || got != want {
			t.Errorf("%s\nwant %s\ngot  %s\n%v", plain, want, got, err)
			continue
		}
		if again, err := Statement(got, types); err != nil || again != got {
			t.Errorf("what is qualified is changed by it:\n%s\n%s\n%v", got, again, err)
		}
		if left, err := Unqualified(got); err != nil || len(left) > 0 {
			t.Errorf("%s\nleaves %q, %v", got, left, err)
		}
	}
}

func TestWhatCannotBeQualifiedIsRefused(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"SELECT 1 IN (2, 3)", "SELECT 1 NOT IN (2)", "SELECT 1 IN (SELECT 2)", "SELECT 1 BETWEEN 2 AND 3", "SELECT 'a' LIKE 'b'", "SELECT 'a' ILIKE 'b'",
		"SELECT 'a' SIMILAR TO 'b'", "SELECT 1 IS DISTINCT FROM 2", "SELECT 1 IS NOT DISTINCT FROM 2", "SELECT NULLIF(1, 2)",
		"SELECT CASE 1 WHEN 2 THEN 3 END", "SELECT 1 FROM idem.a JOIN idem.b USING (c)", "SELECT 1 FROM idem.a NATURAL JOIN idem.b",
		"SELECT a FROM idem.t ORDER BY a USING <", "SELECT 1 FROM records", "INSERT INTO records VALUES (1)", "SELECT $9", "SELECT FROM WHERE",
	} {
		if got, err := Statement(sql, nil); err == nil {
			t.Errorf("%s is taken for %s", sql, got)
		}
	}
}

func TestWhatIsUnqualifiedIsFound(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"SELECT 1 = 2", "SELECT count(*)", "SELECT 'a'::text", "SELECT a FROM t", "SELECT $1", "SELECT 1 = ANY (SELECT 2)", `SELECT 'a' COLLATE "C"`,
		"SELECT 1 IN (2)", "DELETE FROM t", "SELECT 1 FROM idem.t WHERE EXISTS (SELECT now())", "SELECT '{}'::text[]",
	} {
		if left, err := Unqualified(sql); err != nil || len(left) == 0 {
			t.Errorf("%s leaves %q, %v", sql, left, err)
		}
	}
}
