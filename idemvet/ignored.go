package idemvet

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// Ignored is the analyzer that reports ignored errors of idem, if ignoring the error breaks a
// guarantee.
var Ignored = analyzer("idemignored", `find ignored errors of idem

After an error of DoTx the caller's transaction must not be committed, and after an error of a step the operation must stop. An error of HashJSON
means that there is no hash, and an error of Add that no message will be sent. An undo that is not passed to a step never runs.`,
	func(pass *analysis.Pass) {
		in := inspectorOf(pass)
		look := func(statement ast.Node) {
			if call := ignoredCall(statement); call != nil && isFunc(callee(pass.TypesInfo, call), library+"/operation", "UndoTx", "UndoCall") {
				pass.ReportRangef(call, "this undo is not passed to a step and never runs: make it an argument of the step that it undoes")
			}
			if call := callWithIgnoredError(pass.TypesInfo, statement); call != nil {
				if to := callee(pass.TypesInfo, call); to != nil && ofIdem(to.Pkg()) && to.Pkg() != pass.Pkg && mustBeChecked(to) {
					pass.ReportRangef(call, "the error of %s.%s is ignored: %s", to.Pkg().Name(), to.Name(), consequence(to.Name()))
				}
			}
		}
		in.Preorder([]ast.Node{(*ast.ExprStmt)(nil), (*ast.AssignStmt)(nil), (*ast.GoStmt)(nil), (*ast.DeferStmt)(nil)}, look)
		for _, b := range bodiesOf(pass) {
			b.walk(pass.TypesInfo, func(n ast.Node) {
				call := callWithIgnoredError(pass.TypesInfo, n)
				if call == nil {
					return
				}
				if scanned := scannedRow(pass.TypesInfo, call); scanned != nil {
					call = scanned
				}
				to, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
				if !ok || isReportedLater[to.Sel.Name] || !isTx(pass.TypesInfo.TypeOf(to.X)) {
					return
				}
				if id, ok := ast.Unparen(to.X).(*ast.Ident); !ok || !b.isSavepoint(id) {
					pass.ReportRangef(call,
						"an error of the tx is ignored, although it has aborted the transaction: return it, or run this statement in a savepoint (tx.Begin)")
				}
			})
		}
	})

// scannedRow returns the call of QueryRow if call is Scan directly after it, as in tx.QueryRow(ctx,
// sql).Scan(&id). It returns nil for any other call.
func scannedRow(info *types.Info, call *ast.CallExpr) *ast.CallExpr {
	to, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || to.Sel.Name != "Scan" {
		return nil
	}
	row, ok := ast.Unparen(to.X).(*ast.CallExpr)
	if f := callee(info, call); !ok || !isFunc(f, pgx, "Scan") && !isFunc(f, "database/sql", "Scan") {
		return nil
	}
	return row
}

// isReportedLater lists the methods of a transaction whose ignored error this rule does not report.
// After a failed Query, its rows report the error again. Commit and Rollback are reported by the
// rule idemended.
var isReportedLater = map[string]bool{"Commit": true, "Rollback": true, "Query": true, "QueryContext": true}

// callWithIgnoredError returns the call in the statement n whose error the statement ignores, or
// nil.
func callWithIgnoredError(info *types.Info, n ast.Node) *ast.CallExpr {
	call := ignoredCall(n)
	if call == nil {
		return nil
	}
	if f := callee(info, call); f == nil || !returnsError(f) {
		return nil
	}
	return call
}

// ignoredCall returns the call in the statement n whose last result the statement ignores, or nil.
// The result need not be an error.
func ignoredCall(n ast.Node) (call *ast.CallExpr) {
	switch n := n.(type) {
	case *ast.ExprStmt:
		call, _ = ast.Unparen(n.X).(*ast.CallExpr)
	case *ast.GoStmt:
		call = n.Call
	case *ast.DeferStmt:
		call = n.Call
	case *ast.AssignStmt:
		last, ok := n.Lhs[len(n.Lhs)-1].(*ast.Ident)
		if ok && last.Name == "_" && len(n.Rhs) == 1 {
			call, _ = ast.Unparen(n.Rhs[0]).(*ast.CallExpr)
		}
	}
	return call
}

// returnsError reports whether the last result of f is an error.
func returnsError(f *types.Func) bool {
	results := f.Signature().Results()
	return results.Len() > 0 && isError(results.At(results.Len()-1).Type())
}

// mustBeChecked reports whether ignoring the error of f, a function of idem, breaks a guarantee. A
// program may ignore an error of Close, or of a function that only reads.
func mustBeChecked(f *types.Func) bool {
	if !returnsError(f) {
		return false
	}
	params := f.Signature().Params()
	if params.Len() > 0 && isNamed(params.At(0).Type(), library+"/operation", "Op") {
		return true // a step
	}
	switch f.Name() {
	case "Do", "DoJSON", "DoTx", "HashJSON", "Start", "Add", "Queue", "Handle", "HandleTx", "Batch", "Bulk", "Checkpoint":
		return true
	}
	return false
}

// consequence describes, for a diagnostic, what happens if a program ignores the error of the
// function called name.
func consequence(name string) string {
	switch name {
	case "DoTx", "HandleTx", "Start", "Add":
		return "after it, the caller's transaction must not be committed"
	case "HashJSON":
		return "different requests would have the same hash"
	case "Do", "DoJSON", "Handle", "Batch", "Bulk", "Queue":
		return "without it the caller does not know whether the call was executed"
	}
	return "the function of the operation must return it"
}
