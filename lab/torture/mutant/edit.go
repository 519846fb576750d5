package mutant

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Edit replaces a piece of a declaration. The declaration is found in the syntax tree of its
// package. The piece must occur in it exactly once, as whole words. Files, positions and layout do
// not matter.
type Edit struct {
	// In is the package and the declaration, such as internal/txn.Tx.Commit or
	// internal/db.ClaimSQL, or a file of SQL.
	In       string
	Old, New string
}

// apply makes the edit. edited has the files that earlier edits changed, and apply adds to it.
func (e Edit) apply(root string, edited map[string]string) error {
	d, err := e.find(root, edited)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errStale, e.In, err)
	}
	places := pattern(e.Old).FindAllStringIndex(d.source[d.begin:d.end], -1)
	if len(places) != 1 {
		return fmt.Errorf("%w: %s has %d times %q", errStale, e.In, len(places), e.Old)
	}
	begin, end := d.begin+places[0][0], d.begin+places[0][1]
	edited[d.file] = d.source[:begin] + strings.TrimSpace(e.New) + d.source[end:]
	return nil
}

// pattern matches the words of a piece, with white space of any kind and length between them.
func pattern(piece string) *regexp.Regexp {
	words := strings.Fields(piece)
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	matches := strings.Join(words, `\s+`)
	if beginsWithWord.MatchString(piece) {
		matches = `\b` + matches
	}
	if endsInWord.MatchString(piece) {
		matches += `\b`
	}
	return regexp.MustCompile(matches)
}

var beginsWithWord, endsInWord = regexp.MustCompile(`^\s*\w`), regexp.MustCompile(`\w\s*$`)

// declared is the declaration that an edit changes: a part of a file.
type declared struct {
	file, source string
	begin, end   int
}

// find searches the files of the package for the declaration of the edit.
func (e Edit) find(root string, edited map[string]string) (*declared, error) {
	read := func(file string) (string, error) {
		if source, ok := edited[file]; ok {
			return source, nil
		}
		source, err := os.ReadFile(filepath.Join(root, file))
		return string(source), err
	}
	if path.Ext(e.In) == ".sql" {
		source, err := read(e.In)
		return &declared{e.In, source, 0, len(source)}, err
	}
	dir, base := path.Split(e.In)
	name, declaration, _ := strings.Cut(base, ".")
	if dir += name; dir == "idem" {
		dir = "."
	}
	all, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var found []*declared
	for _, one := range all {
		if strings.HasSuffix(one, "_test.go") {
			continue
		}
		file := path.Join(dir, filepath.Base(one))
		source, err := read(file)
		if err != nil {
			return nil, err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if node := declarationOf(parsed, declaration); node != nil {
			found = append(found, &declared{file, source, int(node.Pos() - parsed.FileStart), int(node.End() - parsed.FileStart)})
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("it is declared %d times", len(found))
	}
	return found[0], nil
}

// declarationOf returns the declaration with the name: a function, a method as Type.Method, or a
// value.
func declarationOf(file *ast.File, name string) (found ast.Node) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if nameOf(d) == name {
				found = d
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				value, ok := spec.(*ast.ValueSpec)
				if ok && slices.ContainsFunc(value.Names, func(n *ast.Ident) bool { return n.Name == name }) {
					found = value
				}
			}
		}
	}
	return found
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	return fmt.Sprintf("%s.%s", of, f.Name.Name)
}
