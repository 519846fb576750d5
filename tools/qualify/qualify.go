package qualify

import (
	"fmt"
	"reflect"
	"sort"
	"strings"

	"github.com/idem-go/idem/tools/syntax"
)

// System is the schema that Statement adds to a name without a schema.
const System = "pg_catalog"

// Statement returns sql with a schema for every name. types contains the type of each parameter
// that sql does not cast, by the number of the parameter. Statement fails if a name cannot get a
// schema, or if the result would not have the same meaning as sql.
func Statement(sql string, types map[int]string) (string, error) {
	q := &qualifier{sql: sql, types: types, queries: map[string]bool{}}
	tree, err := syntax.Parse(sql)
	if err != nil {
		return "", err
	}
	if q.tokens, err = tokens(sql); err != nil {
		return "", err
	}
	q.nameQueries(tree)
	if tree = q.visit(tree, ""); q.err != nil {
		return "", q.err
	}
	qualified := q.edited()
	return qualified, same(tree, qualified)
}

type node = syntax.Node

// qualifier walks through a syntax tree. It records its changes as edits of the text, and makes the
// same changes to the tree. At the end, Statement compares the changed tree with the tree of the
// edited text.
type qualifier struct {
	sql     string
	types   map[int]string
	tokens  []token
	queries map[string]bool // the names of WITH queries
	edits   []edit
	err     error
}

// edit replaces a part of the text. Of two edits at the same position, the edit with the lower rank
// comes first.
type edit struct {
	start, end, rank int
	text             string
}

// These are the ranks of edits. If several texts are inserted at the same position, their order is:
// the cast of a parameter that ends there, closing parentheses, opening parentheses, and the schema
// of a name that begins there.
const (
	castRank = iota
	closeRank
	openRank
	nameRank
)

// fail records an error for a position in the text. Only the first error is kept.
func (q *qualifier) fail(at int, format string, args ...any) {
	if q.err == nil {
		line := 1 + strings.Count(q.sql[:min(at, len(q.sql))], "\n")
		q.err = fmt.Errorf("line %d of the statement: %s", line, fmt.Sprintf(format, args...))
	}
}

func (q *qualifier) insert(at, rank int, text string) {
	q.edits = append(q.edits, edit{start: at, end: at, rank: rank, text: text})
}

// edited returns the text with all edits applied.
func (q *qualifier) edited() string {
	sort.SliceStable(q.edits, func(i, j int) bool {
		a, b := q.edits[i], q.edits[j]
		if a.start != b.start {
			return a.start < b.start
		}
		return a.rank < b.rank
	})
	var text strings.Builder
	done := 0
	for _, e := range q.edits {
		text.WriteString(q.sql[done:e.start])
		text.WriteString(e.text)
		done = e.end
	}
	text.WriteString(q.sql[done:])
	return text.String()
}

// nameQueries records the names of WITH queries, which get no schema. Postgres looks up a name
// among the WITH queries before it looks for a table.
func (q *qualifier) nameQueries(tree any) {
	syntax.Each(tree, func(n node) {
		if name, ok := n["ctename"].(string); ok {
			q.queries[name] = true
		}
	})
}

// visit adds schemas to the names in a part of the tree and returns the changed part. If the parent
// of the part is a cast, field is the name of the parent's field that contains the part. Otherwise
// field is "".
func (q *qualifier) visit(tree any, field string) any {
	switch tree := tree.(type) {
	case []any:
		for i := range tree {
			tree[i] = q.visit(tree[i], "")
		}
	case node:
		q.refuse(tree)
		q.rename(tree)
		for name, value := range tree {
			if name == "lockedRels" { // FOR UPDATE OF repeats names from the FROM clause, which need no schema
				continue
			}
			under := ""
			if _, isCast := tree["typeName"]; isCast {
				under = name
			}
			tree[name] = q.visit(value, under)
		}
		if parameter, ok := tree["ParamRef"].(node); ok && field != "arg" {
			return q.cast(tree, parameter)
		}
	}
	return tree
}

// rename adds a schema to the names in one object of the tree.
func (q *qualifier) rename(n node) {
	if e, ok := n["A_Expr"].(node); ok && q.err == nil {
		q.operator(e)
	}
	if s, ok := n["SubLink"].(node); ok && s["operName"] != nil {
		q.named(s, "operName", func(at int) { q.replaceOperator(at, syntax.Name(s["operName"])) })
	}
	prefix := func(at int) { q.insert(at, nameRank, System+".") }
	q.named(n, "funcname", prefix)
	if n["typemod"] != nil {
		q.named(n, "names", prefix)
		q.word(n, prefix)
	}
	q.named(n, "collname", func(at int) { prefix(q.tokens[q.at(at)+1].start) })
	if name, ok := n["relname"].(string); ok && n["schemaname"] == nil && !q.queries[name] {
		if !strings.HasPrefix(name, "pg_") {
			q.fail(location(n), "the table %s has no schema", name)
		}
		prefix(location(n))
		n["schemaname"] = System
	}
}

// named adds a schema to the name in a field of n, if the name has none. It changes the tree. To
// change the text, it calls edit with the position of the name.
func (q *qualifier) named(n node, field string, edit func(at int)) {
	parts, ok := n[field].([]any)
	if !ok || len(parts) != 1 {
		return
	}
	edit(location(n))
	n[field] = append([]any{node{"String": node{"sval": System}}}, parts...)
}

// word handles a type that is a keyword of the grammar, such as INTERVAL. The grammar gives such a
// type the schema pg_catalog even without a prefix, so the text needs none. INTERVAL after :: gets
// the prefix all the same.
func (q *qualifier) word(n node, prefix func(at int)) {
	at := location(n)
	if i := q.at(at); i > 0 && q.tokens[i].text == "INTERVAL" && q.tokens[i-1].text == "::" {
		prefix(at)
	}
}

// operator replaces an operator by OPERATOR() with a schema. OPERATOR() has another precedence, so
// a right operand that is an operator expression itself gets parentheses.
func (q *qualifier) operator(e node) {
	kind, at := e["kind"].(string), location(e)
	if kind != "AEXPR_OP" && kind != "AEXPR_OP_ANY" && kind != "AEXPR_OP_ALL" {
		return // refuse has already reported this kind of expression
	}
	if right, ok := e["rexpr"].(node); ok && kind == "AEXPR_OP" {
		if inner, ok := right["A_Expr"].(node); ok && q.depth(location(inner)) == q.depth(at) {
			first := q.at(at) + 1
			q.insert(q.tokens[first].start, openRank, "(")
			q.insert(q.endOf(inner, first), closeRank, ")")
		}
	}
	q.named(e, "name", func(at int) { q.replaceOperator(at, syntax.Name(e["name"])) })
}

// endOf returns the position at which e ends. e is a right operand that is an operator expression
// without parentheses. Its end is the end of its own right operand, which may again be an operator
// expression.
func (q *qualifier) endOf(e node, first int) int {
	at := q.at(location(e))
	right, _ := e["rexpr"].(node)
	if inner, ok := right["A_Expr"].(node); ok && q.depth(location(inner)) == q.tokens[at].depth {
		return q.endOf(inner, at+1)
	}
	return end(q.tokens, at+1, true)
}

func (q *qualifier) replaceOperator(at int, name string) {
	t := q.tokens[q.at(at)]
	q.edits = append(q.edits, edit{start: t.start, end: t.end, rank: nameRank, text: "OPERATOR(" + System + "." + name + ")"})
}

// cast adds a cast to a parameter that the text does not cast. whole is the tree node around the
// parameter.
func (q *qualifier) cast(whole, parameter node) any {
	number := int(parameter["number"].(float64))
	name, known := q.types[number]
	if !known {
		q.fail(location(parameter), "the type of $%d is not known: cast it", number)
		return whole
	}
	t := q.tokens[q.at(location(parameter))]
	q.insert(t.end, castRank, "::"+System+"."+name)
	element, isArray := strings.CutSuffix(name, "[]")
	typed := node{"names": []any{node{"String": node{"sval": System}}, node{"String": node{"sval": element}}}, "typemod": -1.0}
	if isArray {
		typed["arrayBounds"] = []any{node{"Integer": node{"ival": -1.0}}}
	}
	return node{"TypeCast": node{"arg": whole, "typeName": typed}}
}

// at returns the index of the token that begins at the position start.
func (q *qualifier) at(start int) int {
	i := sort.Search(len(q.tokens), func(i int) bool { return q.tokens[i].start >= start })
	if i == len(q.tokens) || q.tokens[i].start != start {
		q.fail(start, "no token begins where the tree says")
		return 0
	}
	return i
}

func (q *qualifier) depth(start int) int { return q.tokens[q.at(start)].depth }

// location returns the position of a node in the text. A missing field means position 0, because
// the tree omits fields that are zero.
func location(n node) int {
	at, _ := n["location"].(float64)
	return int(at)
}

// same returns an error if the syntax tree of text differs from tree. It ignores positions.
func same(tree any, text string) error {
	read, err := syntax.Parse(text)
	if err != nil {
		return fmt.Errorf("what was made of the statement is not understood: %w\n%s", err, text)
	}
	unplace(tree)
	unplace(read)
	if !reflect.DeepEqual(tree, read) {
		return fmt.Errorf("what was made of the statement says something else: write AS before an alias, or parentheses\n%s", text)
	}
	return nil
}

// unplace removes the positions from a tree.
func unplace(tree any) {
	syntax.Each(tree, func(n node) {
		for field := range n {
			if strings.HasSuffix(field, "location") || field == "stmt_len" {
				delete(n, field)
			}
		}
	})
}
