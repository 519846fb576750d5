// Package qualify adds the schema to everything that a statement looks up by name: operators,
// functions, types, collations and relations. It rewrites
//
//	SELECT count(*) FROM idem.inbox m WHERE m.since < now() - $1
//
// to
//
//	SELECT pg_catalog.count(*) FROM idem.inbox m
//	WHERE m.since OPERATOR(pg_catalog.<)
//		(pg_catalog.now() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)
//
// The result has the same meaning under every search_path, and in the simple protocol, where a
// parameter is a literal.
//
// The rules are:
//
//   - A name without a schema belongs to pg_catalog.
//   - Tables and functions of idem need their schema in the source. A relation without a schema is
//     an error unless its name begins with pg_.
//   - A parameter without a cast gets the type that the caller passes.
//   - A construct that looks up an operator and cannot name its schema is an error: IN, BETWEEN,
//     LIKE, IS DISTINCT FROM, NULLIF, CASE x WHEN, USING.
//
// PostgreSQL's own grammar parses the text. The package then edits the text at the positions in the
// tree, so that lines and comments stay. OPERATOR() has another precedence than the operator that
// it replaces, so the package also adds parentheses. It checks every edit: the tree of the result
// must equal the edited tree of the source.
package qualify
