package idemvet

import (
	"go/ast"

	"golang.org/x/tools/go/analysis"
)

// Ended finds functions that end the transaction that they are given.
var Ended = rule("idemended", `find functions that commit or roll back the transaction of idem

The transaction is idem's to end, with what it records. A function undoes what it did by returning an error.`,
	func(pass *analysis.Pass, b *body, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || b.tx == nil {
			return
		}
		to, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		if !ok || to.Sel.Name != "Commit" && to.Sel.Name != "Rollback" {
			return
		}
		if id, ok := ast.Unparen(to.X).(*ast.Ident); ok && pass.TypesInfo.Uses[id] == b.tx && !b.isSavepoint(id) {
			pass.ReportRangef(call, "%s ends the transaction of %s, which is idem's to end, with what it records: return an error to undo it", to.Sel.Name, b.by)
		}
	})

// isSavepoint reports whether the name of the transaction has been given to a savepoint of it: tx, err := tx.Begin(ctx).
func (b *body) isSavepoint(tx *ast.Ident) bool {
	for _, set := range b.set[b.tx] {
		call, ok := ast.Unparen(set).(*ast.CallExpr)
		if ok && call.End() <= tx.Pos() && isFunc(callee(b.info, call), pgx, "Begin") && mentions(b.info, call.Fun, b.tx) {
			return true
		}
	}
	return false
}
