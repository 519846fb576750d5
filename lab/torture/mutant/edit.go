package mutant

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Edit replaces a piece of a declaration. The piece must occur in the declaration exactly once: in
// Go as an expression or statements, in SQL as a sequence of words. Files, positions and layout do
// not matter.
type Edit struct {
	// In is the package and the declaration, such as internal/txn.Tx.Commit or
	// internal/db.ClaimSQL, or a file of SQL.
	In       string
	Old, New string
}

// apply makes the edit. edited has the files that earlier edits changed, and apply adds to it.
func (e Edit) apply(root string, edited map[string]string) error {
	found, err := e.find(root, edited)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errStale, e.In, err)
	}
	places := found.pieces(e.Old)
	if len(places) != 1 {
		return fmt.Errorf("%w: %s has %d times %q", errStale, e.In, len(places), e.Old)
	}
	at := places[0]
	edited[found.file] = found.source[:at.begin] + strings.TrimSpace(e.New) + found.source[at.end:]
	return nil
}

// declared is the declaration that an edit changes, with its file.
type declared struct {
	file, source string
	span
	node  ast.Node // nil in a file of SQL
	files *token.FileSet
}

type span struct{ begin, end int }

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
		return &declared{file: e.In, source: source, span: span{0, len(source)}}, err
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
		d := &declared{file: path.Join(dir, filepath.Base(one)), files: token.NewFileSet()}
		if d.source, err = read(d.file); err != nil {
			return nil, err
		}
		parsed, err := parser.ParseFile(d.files, d.file, d.source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if d.node = declarationOf(parsed, declaration); d.node != nil {
			d.span = d.spanOf(d.node.Pos(), d.node.End())
			found = append(found, d)
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

func (d *declared) spanOf(begin, end token.Pos) span {
	file := d.files.File(begin)
	return span{file.Offset(begin), file.Offset(end)}
}

// pieces returns all places of the declaration that have the piece.
func (d *declared) pieces(piece string) (found []span) {
	if d.node != nil {
		found = d.nodes(piece)
	}
	words := strings.Fields(piece)
	if _, isFunc := d.node.(*ast.FuncDecl); isFunc || len(found) > 0 || len(words) == 0 {
		return found
	}
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	for _, at := range regexp.MustCompile(strings.Join(words, `\s+`)).FindAllStringIndex(d.source[d.begin:d.end], -1) {
		found = append(found, span{d.begin + at[0], d.begin + at[1]})
	}
	return found
}

// nodes returns the expressions and the sequences of statements whose tokens are those of the
// piece. Comparing tokens makes the layout and the comments of the source irrelevant.
func (d *declared) nodes(piece string) (found []span) {
	wanted := tokens(piece)
	for _, at := range d.places() {
		if !slices.Contains(found, at) && slices.Equal(tokens(d.source[at.begin:at.end]), wanted) {
			found = append(found, at)
		}
	}
	return found
}

// places returns every place in the declaration that can match a piece: an expression, a sequence
// of statements in a block, and the head of a block without its brace or colon.
func (d *declared) places() (places []span) {
	names := map[ast.Node]bool{} // of fields and methods; matched only with their operand
	ast.Inspect(d.node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			names[n.Sel] = true
			places = append(places, d.spanOf(n.Pos(), n.End()))
		case ast.Expr:
			if !names[n] {
				places = append(places, d.spanOf(n.Pos(), n.End()))
			}
		case *ast.BlockStmt:
			places = append(places, d.runs(n.List)...)
		case *ast.CaseClause:
			places = append(append(places, d.head(n.Pos(), n.Colon)), d.runs(n.Body)...)
		case *ast.CommClause:
			places = append(append(places, d.head(n.Pos(), n.Colon)), d.runs(n.Body)...)
		case *ast.IfStmt:
			places = append(places, d.head(n.Pos(), n.Body.Lbrace))
		case *ast.ForStmt:
			places = append(places, d.head(n.Pos(), n.Body.Lbrace))
		case *ast.RangeStmt:
			places = append(places, d.head(n.Pos(), n.Body.Lbrace))
		}
		return true
	})
	return places
}

// head returns the source between begin and the opening brace or colon of a block.
func (d *declared) head(begin, opens token.Pos) span {
	at := d.spanOf(begin, opens)
	at.end = at.begin + len(strings.TrimSpace(d.source[at.begin:at.end]))
	return at
}

// runs returns all sequences of consecutive statements of a block.
func (d *declared) runs(list []ast.Stmt) (runs []span) {
	for i, first := range list {
		for _, last := range list[i:] {
			runs = append(runs, d.spanOf(first.Pos(), last.End()))
		}
	}
	return runs
}

// tokens returns the tokens of a piece of Go, without comments and automatic semicolons.
func tokens(piece string) (texts []string) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(piece))
	s.Init(file, []byte(piece), func(token.Position, string) {}, 0)
	for {
		_, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return texts
		case tok == token.SEMICOLON && text != ";":
			continue
		case text == "":
			text = tok.String()
		}
		texts = append(texts, text)
	}
}
