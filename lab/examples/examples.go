// Package examples runs examples that go test cannot run, because they need a database or a broker.
// It compares their output with their comment "Prints:".
package examples

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Run runs each example in example_test.go of the package and compares its output. functions maps
// the names of the examples, without "Example", to their functions. Run calls prepare before each
// example. It redirects standard output, so the test must not be parallel.
func Run(t *testing.T, functions map[string]func(), prepare func(t *testing.T, name string)) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "example_test.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range doc.Examples(file) {
		t.Run("Example"+example.Name, func(t *testing.T) {
			f, ok := functions[example.Name]
			if !ok {
				t.Fatal("the map does not contain the function of this example")
			}
			prepare(t, example.Name)
			if diff := cmp.Diff(expected(t, example), Printed(t, f)); diff != "" {
				t.Errorf("(-comment +printed)\n%s", diff)
			}
		})
	}
}

// expected returns the text of the comment "Prints:" in an example.
func expected(t *testing.T, example *doc.Example) string {
	t.Helper()
	inside := func(c *ast.CommentGroup) bool { return example.Code.Pos() < c.Pos() && c.End() < example.Code.End() }
	for _, comment := range example.Comments { // example.Comments has the comments of the whole file
		if text, ok := strings.CutPrefix(comment.Text(), "Prints:"); ok && inside(comment) {
			return strings.TrimSpace(text)
		}
	}
	t.Fatal("the example has no comment \"Prints:\"")
	return ""
}

// Printed returns what f writes to standard output. It removes one space at the end of each line,
// because gofmt removes it from comments.
func Printed(t *testing.T, f func()) string {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = in
	func() {
		defer func() { os.Stdout = stdout }()
		f()
	}()
	in.Close()
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(text)), " \n", "\n")
}
