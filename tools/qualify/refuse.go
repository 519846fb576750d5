package qualify

import (
	"slices"

	"github.com/idem-go/idem/tools/syntax"
)

// refuse records an error if n is a construct that looks up a name to which no schema can be added,
// such as IN.
func (q *qualifier) refuse(n node) {
	for _, reason := range refusals(n) {
		q.fail(reason.at, "%s", reason.text)
	}
}

type refusal struct {
	at   int
	text string
}

// instead contains a hint for each kind of expression that looks up an operator: what to write in
// its place.
var instead = map[string]string{
	"AEXPR_IN":              "IN looks up its operator: write = ANY (...) or <> ALL (...)",
	"AEXPR_DISTINCT":        "IS DISTINCT FROM looks up its operator: compare, and ask for NULL",
	"AEXPR_NOT_DISTINCT":    "IS NOT DISTINCT FROM looks up its operator: compare, and ask for NULL",
	"AEXPR_NULLIF":          "NULLIF looks up its operator: write CASE WHEN",
	"AEXPR_LIKE":            "LIKE looks up its operator: write ~~ or starts_with",
	"AEXPR_ILIKE":           "ILIKE looks up its operator: write ~~*",
	"AEXPR_SIMILAR":         "SIMILAR TO looks up its operator: write ~",
	"AEXPR_BETWEEN":         "BETWEEN looks up its operators: write two comparisons",
	"AEXPR_NOT_BETWEEN":     "BETWEEN looks up its operators: write two comparisons",
	"AEXPR_BETWEEN_SYM":     "BETWEEN looks up its operators: write two comparisons",
	"AEXPR_NOT_BETWEEN_SYM": "BETWEEN looks up its operators: write two comparisons",
}

// refusals returns the constructs in n that look up a name to which no schema can be added. Each
// refusal contains a hint what to write instead.
func refusals(n node) []refusal {
	var found []refusal
	add := func(at node, text string) { found = append(found, refusal{location(at), text}) }
	if e, ok := n["A_Expr"].(node); ok {
		if text, ok := instead[e["kind"].(string)]; ok {
			add(e, text)
		}
	}
	if s, ok := n["SubLink"].(node); ok && s["subLinkType"] == "ANY_SUBLINK" && s["operName"] == nil {
		add(s, instead["AEXPR_IN"])
	}
	if c, ok := n["CaseExpr"].(node); ok && c["arg"] != nil {
		add(c, "CASE x WHEN y looks up its operator: write CASE WHEN x = y")
	}
	if j, ok := n["JoinExpr"].(node); ok && (j["usingClause"] != nil || j["isNatural"] != nil) {
		add(j, "USING and NATURAL look up their operators: write ON")
	}
	if s, ok := n["SortBy"].(node); ok && s["useOp"] != nil {
		add(s, "ORDER BY ... USING looks up its operator: write ASC or DESC")
	}
	return found
}

// Unqualified returns the names that a statement looks up without a schema. It also reports
// parameters without a cast, and constructs such as IN, which look up a name to which no schema can
// be added.
func Unqualified(sql string) ([]string, error) {
	tree, err := syntax.Parse(sql)
	if err != nil {
		return nil, err
	}
	queries := &qualifier{queries: map[string]bool{}}
	queries.nameQueries(tree)
	var found []string
	cast, parameters := 0, 0
	syntax.Each(tree, func(n node) {
		delete(n, "lockedRels") // FOR UPDATE OF repeats names from the FROM clause, which need no schema
		for _, r := range refusals(n) {
			found = append(found, r.text)
		}
		for _, field := range []string{"name", "operName", "funcname", "names", "collname"} {
			if parts, ok := n[field].([]any); ok && len(parts) == 1 {
				found = append(found, syntax.Name(parts))
			}
		}
		if name, ok := n["relname"].(string); ok && n["schemaname"] == nil && !queries.queries[name] {
			found = append(found, name)
		}
		if _, ok := n["ParamRef"]; ok {
			parameters++
		}
		if c, ok := n["TypeCast"].(node); ok {
			if arg, ok := c["arg"].(node); ok && arg["ParamRef"] != nil {
				cast++
			}
		}
	})
	if cast != parameters {
		found = append(found, "a parameter that is not cast")
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
