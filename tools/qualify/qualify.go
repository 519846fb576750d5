package qualify

import (
	"fmt"
	"reflect"
	"sort"
	"strings"

	"github.com/idem-go/idem/tools/syntax"
)

// System is the schema of what has none.
const System = "pg_catalog"

// Statement returns a statement with everything qualified. types are the types of its parameters, by number: those that the text does
// not cast get them.
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

// qualifier walks through a tree, in which it changes what it changes in the text.
type qualifier struct {
	sql     string
	types   map[int]string
	tokens  []token
	queries map[string]bool // the names of WITH
	edits   []edit
	err     error
}

// edit is a text that replaces a part of the source. Of those at one place the lower rank comes first.
type edit struct {
	start, end, rank int
	text             string
}

const (
	castRank = iota
	closeRank
	openRank
	nameRank
)

func (q *qualifier) fail(at int, format string, args ...any) {
	if q.err == nil {
		line := 1 + strings.Count(q.sql[:min(at, len(q.sql))], "\n")
		q.err = fmt.Errorf("line %d of the statement: %s", line, fmt.Sprintf(format, args...))
	}
}

func (q *qualifier) insert(at, rank int, text string) {
	q.edits = append(q.edits, edit{start: at, end: at, rank: rank, text: text})
}

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

// nameQueries finds the names that WITH gives to queries, which are looked up before tables.
func (q *qualifier) nameQueries(tree any) {
	syntax.Each(tree, func(n node) {
		if name, ok := n["ctename"].(string); ok {
			q.queries[name] = true
		}
	})
}

// visit qualifies a part of the tree and returns it as it is then. field is which one of a cast it is.
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
			if name == "lockedRels" { // FOR UPDATE OF has the names of what FROM has
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

// rename qualifies the names in one object.
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

// named calls edit where a name without a schema begins, and gives it one.
func (q *qualifier) named(n node, field string, edit func(at int)) {
	parts, ok := n[field].([]any)
	if !ok || len(parts) != 1 {
		return
	}
	edit(location(n))
	n[field] = append([]any{node{"String": node{"sval": System}}}, parts...)
}

// word qualifies a type that is a word of the grammar, which means that of the system either way.
func (q *qualifier) word(n node, prefix func(at int)) {
	at := location(n)
	if i := q.at(at); i > 0 && q.tokens[i].text == "INTERVAL" && q.tokens[i-1].text == "::" {
		prefix(at)
	}
}

// operator qualifies an operator. What was bound by its precedence gets parentheses.
func (q *qualifier) operator(e node) {
	kind, at := e["kind"].(string), location(e)
	if kind != "AEXPR_OP" && kind != "AEXPR_OP_ANY" && kind != "AEXPR_OP_ALL" {
		return // which refuse has refused
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

// endOf returns where an operand ends that is an operator with operands, and has no parentheses of its own.
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

// cast casts a parameter that is not cast by the text.
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

// at returns the index of the token that begins there.
func (q *qualifier) at(start int) int {
	i := sort.Search(len(q.tokens), func(i int) bool { return q.tokens[i].start >= start })
	if i == len(q.tokens) || q.tokens[i].start != start {
		q.fail(start, "no token begins where the tree says")
		return 0
	}
	return i
}

func (q *qualifier) depth(start int) int { return q.tokens[q.at(start)].depth }

// location returns where a node is in the text. The tree leaves out what is zero.
func location(n node) int {
	at, _ := n["location"].(float64)
	return int(at)
}

// same returns an error unless a text has this tree.
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

// unplace takes out of a tree where its nodes are in the text.
func unplace(tree any) {
	syntax.Each(tree, func(n node) {
		for field := range n {
			if strings.HasSuffix(field, "location") || field == "stmt_len" {
				delete(n, field)
			}
		}
	})
}
