// Package qualify names the schema of everything that a statement looks up by its name: operators, functions, types, collations and
// relations. What a person writes as
//
//	SELECT count(*) FROM idem.inbox m WHERE m.since < now() - $1
//
// becomes
//
//	SELECT pg_catalog.count(*) FROM idem.inbox m WHERE m.since OPERATOR(pg_catalog.<) (pg_catalog.now() OPERATOR(pg_catalog.-) $1::pg_catalog.interval)
//
// so that no search_path changes what the statement does, and so that it means the same under the simple protocol, where a parameter
// is a literal.
//
// The rules: what has no schema is in pg_catalog. Tables, and functions of idem's own, are written with theirs; of relations only
// those of the system, which begin with pg_, may go without. A parameter that is not cast gets the type that the caller says. A
// construct that looks up an operator and cannot name its schema (IN, BETWEEN, LIKE, IS DISTINCT FROM, NULLIF, CASE x WHEN, USING) is
// an error.
//
// The text is parsed by PostgreSQL's own grammar and edited where the tree says, so that its lines and comments stay. OPERATOR() has
// another precedence than the operators that it stands for, which is why parentheses are added. That the edit says the same is not
// taken on trust: the result is parsed, and its tree is compared with that of the source.
package qualify
