package mutant

import (
	"go/ast"
	"go/scanner"
	"go/token"
	"strings"
)

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
