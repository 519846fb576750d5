// Package syntax reads statements with the grammar of PostgreSQL.
package syntax

import (
	"encoding/json"
	"sync"

	"github.com/wasilibs/go-pgquery/parser"
)

// Node is an object of a tree: a node of its own, or the name of its kind and the node.
type Node = map[string]any

// first makes the parser's first use that of one caller: its runtime then finds out its own version, and keeps that without a lock.
var first = sync.OnceFunc(func() { _, _ = parser.ScanToProtobuf("SELECT 1") })

// Parse returns the tree of a text.
func Parse(sql string) (tree any, err error) {
	first()
	encoded, err := parser.ParseToJSON(sql)
	if err == nil {
		err = json.Unmarshal([]byte(encoded), &tree)
	}
	return tree, err
}

// Scan returns the tokens of a text, encoded as pg_query's ScanResult.
func Scan(sql string) ([]byte, error) {
	first()
	return parser.ScanToProtobuf(sql)
}

// Each calls f with every object of a tree.
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

// Name returns the last part of a name, empty if it has none.
func Name(parts any) string {
	list, _ := parts.([]any)
	if len(list) == 0 {
		return ""
	}
	return Text(list[len(list)-1].(Node)["String"])
}

// Text returns the value of a string.
func Text(s any) string {
	node, _ := s.(Node)
	text, _ := node["sval"].(string)
	return text
}
