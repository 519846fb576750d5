// Package qualify adds the schema to everything that an SQL statement looks up by name: operators,
// functions, types, collations and relations. For example, it rewrites
//
//	SELECT count(*) FROM idem.inbox m WHERE m.since < now() - $1
//
// to
//
//	SELECT pg_catalog.count(*) FROM idem.inbox m
//	WHERE m.since OPERATOR(pg_catalog.<)
//		(pg_catalog.now() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)
//
// The result has the same meaning under every search_path. It also has the same meaning in the
// simple protocol, for which package roundtrip replaces each parameter by a literal.
//
// The rules are:
//
//   - A name without a schema gets the schema pg_catalog.
//   - Tables and functions of idem must have their schema in the source. A relation without a
//     schema is an error unless its name begins with pg_.
//   - A parameter without a cast is cast to the type that the caller of Statement gives for it.
//   - A construct that looks up an operator, but in which no schema can be written, is an error:
//     IN, BETWEEN, LIKE, IS DISTINCT FROM, NULLIF, CASE x WHEN, USING.
//
// The package parses the text with PostgreSQL's own grammar. It then edits the text at the
// positions that the syntax tree contains, so that line breaks and comments stay. OPERATOR() has
// another precedence than the operator that it replaces, so the package also adds parentheses. To
// check the result, the package makes the same changes to the syntax tree of the source. The syntax
// tree of the result must be equal to this changed tree.
package qualify
