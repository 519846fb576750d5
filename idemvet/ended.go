package idemvet

import (
	"go/ast"
	"go/constant"
	"go/types"
	"slices"
	"strings"

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
		if !ok || !b.isItsTx(to.X) {
			return
		}
		if to.Sel.Name == "Commit" || to.Sel.Name == "Rollback" || endsBySQL(pass.TypesInfo, call) {
			pass.ReportRangef(call, "%s ends the transaction of %s, which is idem's to end, with what it records: return an error to undo it", to.Sel.Name, b.by)
		}
	})

// isItsTx reports whether an expression is the transaction of a body, by its name or by another one.
func (b *body) isItsTx(e ast.Expr) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return false
	}
	if set, ok := b.only(id); ok && b.info.Uses[id] != b.tx {
		other, ok := ast.Unparen(set).(*ast.Ident)
		return ok && b.info.Uses[other] == b.tx && !b.isSavepoint(other)
	}
	return b.info.Uses[id] == b.tx && !b.isSavepoint(id)
}

// endsBySQL reports whether a call executes a constant statement that ends a transaction, and not a savepoint.
func endsBySQL(info *types.Info, call *ast.CallExpr) bool {
	if !isFunc(callee(info, call), pgx, "Exec") && !isFunc(callee(info, call), "database/sql", "Exec", "ExecContext") {
		return false
	}
	for _, arg := range call.Args {
		if value := info.Types[arg].Value; value != nil && value.Kind() == constant.String {
			words := strings.Fields(strings.ToUpper(strings.ReplaceAll(constant.StringVal(value), ";", " ")))
			return len(words) > 0 && slices.Contains([]string{"COMMIT", "END", "ROLLBACK", "ABORT"}, words[0]) &&
				!slices.Contains(words, "TO") && !slices.Contains(words, "PREPARED")
		}
		if arg != call.Args[0] {
			break // what follows are arguments of the statement
		}
	}
	return false
}

// isSavepoint reports whether a name has been given to a savepoint, which may be the name of the transaction: tx, err := tx.Begin(ctx).
func (b *body) isSavepoint(tx *ast.Ident) bool {
	for _, set := range b.set[b.info.Uses[tx]] {
		call, ok := ast.Unparen(set).(*ast.CallExpr)
		if ok && call.End() <= tx.Pos() && isFunc(callee(b.info, call), pgx, "Begin") {
			return true
		}
	}
	return false
}
