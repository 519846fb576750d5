package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/idem-go/idem/tools/qualify"
)

// The test checks the generated text, which is what servers get.
func TestNothingInTheGeneratedTextIsLeftToTheSearchPath(t *testing.T) {
	t.Parallel()
	statements := 0
	for _, pattern := range []string{"../../internal/db/*.sql.go", "../../internal/statsdb/*.sql.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			for _, sql := range texts(t, file) {
				statements++
				if left, err := qualify.Unqualified(sql); err != nil || len(left) > 0 {
					t.Errorf("%s leaves %q, %v:\n%s", filepath.Base(file), left, err, sql)
				}
			}
		}
	}
	if statements < 100 {
		t.Errorf("%d statements were found", statements)
	}
}

// texts returns the statements of a file.
func texts(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil && strings.HasPrefix(text, "-- name: ") {
				found = append(found, text)
			}
		}
		return true
	})
	return found
}
