// Package syntax parses SQL statements with PostgreSQL's own grammar.
package syntax

import (
	"encoding/json"
	"sync"

	"github.com/wasilibs/go-pgquery/parser"
)

// Node is a JSON object in a syntax tree. It is either a syntax node, or a wrapper around a syntax
// node. A wrapper has one field, which is named after the kind of the node and contains the node.
type Node = map[string]any

// first runs the parser once before any other use. On its first use, the runtime of the parser
// writes a global variable without a lock, so two simultaneous first uses would race.
var first = sync.OnceFunc(func() { _, _ = parser.ScanToProtobuf("SELECT 1") })

// Parse returns the syntax tree of sql. It fails if sql has a syntax error.
func Parse(sql string) (tree any, err error) {
	first()
	encoded, err := parser.ParseToJSON(sql)
	if err == nil {
		err = json.Unmarshal([]byte(encoded), &tree)
	}
	return tree, err
}

// Scan returns the tokens of sql, encoded as the protobuf message ScanResult of pg_query.
func Scan(sql string) ([]byte, error) {
	first()
	return parser.ScanToProtobuf(sql)
}

// Each calls f with every object in tree. It calls f with a parent before its children.
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

// Name returns the last part of a qualified name, for example the name of a table without its
// schema. It returns "" if parts is empty.
func Name(parts any) string {
	list, _ := parts.([]any)
	if len(list) == 0 {
		return ""
	}
	return Text(list[len(list)-1].(Node)["String"])
}

// Text returns the value of s if s is a string node, and "" otherwise.
func Text(s any) string {
	node, _ := s.(Node)
	text, _ := node["sval"].(string)
	return text
}
