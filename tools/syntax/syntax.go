// Package syntax parses statements with PostgreSQL's own grammar.
package syntax

import (
	"encoding/json"
	"sync"

	"github.com/wasilibs/go-pgquery/parser"
)

// Node is an object of a syntax tree. An object is either a node, or a wrapper with one field that
// is named after the kind of the node.
type Node = map[string]any

// first runs the parser once before its first use. The parser's runtime stores its own version at
// that time without a lock, so two first uses at the same time would race.
var first = sync.OnceFunc(func() { _, _ = parser.ScanToProtobuf("SELECT 1") })

// Parse returns the syntax tree of sql. It fails if sql is not valid.
func Parse(sql string) (tree any, err error) {
	first()
	encoded, err := parser.ParseToJSON(sql)
	if err == nil {
		err = json.Unmarshal([]byte(encoded), &tree)
	}
	return tree, err
}

// Scan returns the tokens of sql, encoded as pg_query's ScanResult.
func Scan(sql string) ([]byte, error) {
	first()
	return parser.ScanToProtobuf(sql)
}

// Each calls f with every object of a tree. A parent comes before its children.
func Each(tree any, f func(Node)) {
	switch tree := tree.(type) {
	case []any:
		for _, element := range tree {
			Each(element, f)
		}
	case Node:
		f(tree)
		for _, field := range tree {
			Each(field, f)
		}
	}
}

// Name returns the last part of a qualified name, or "" if there is none.
func Name(parts any) string {
	list, _ := parts.([]any)
	if len(list) == 0 {
		return ""
	}
	return Text(list[len(list)-1].(Node)["String"])
}

// Text returns the value of a string node, or "" if s is something else.
func Text(s any) string {
	node, _ := s.(Node)
	text, _ := node["sval"].(string)
	return text
}
