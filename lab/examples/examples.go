// Package examples runs the examples of a package that need a database or a broker, which go test cannot run as examples, and holds them to
// their comment "Prints:".
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

// Run runs each example of the package's example_test.go, which run has under its name without "Example", and compares what it prints. Ahead of each one
// prepare is called. Standard output is another one meanwhile: the test must not be parallel.
func Run(t *testing.T, run map[string]func(), prepare func(t *testing.T, name string)) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "example_test.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range doc.Examples(file) {
		t.Run("Example"+example.Name, func(t *testing.T) {
			f, ok := run[example.Name]
			if !ok {
				t.Fatal("this example is never run")
			}
			prepare(t, example.Name)
			if diff := cmp.Diff(says(t, example), Printed(t, f)); diff != "" {
				t.Errorf("(-comment +printed)\n%s", diff)
			}
		})
	}
}

// says returns what the comment at the end of an example says that it prints.
func says(t *testing.T, example *doc.Example) string {
	t.Helper()
	inside := func(c *ast.CommentGroup) bool { return example.Code.Pos() < c.Pos() && c.End() < example.Code.End() }
	for _, comment := range example.Comments { // those of the whole file
		if text, ok := strings.CutPrefix(comment.Text(), "Prints:"); ok && inside(comment) {
			return strings.TrimSpace(text)
		}
	}
	t.Fatal("the example does not say what it prints")
	return ""
}

// Printed returns what f writes to standard output, without the spaces at the ends of lines, which a comment cannot have.
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
