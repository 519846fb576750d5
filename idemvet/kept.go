package idemvet

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// Kept is the analyzer that reports transactions that are used after their function has returned,
// or by another goroutine.
var Kept = rule("idemkept", `find transactions that outlive their function, or that another goroutine uses

The transaction ends when the function returns. It is one connection, which two goroutines cannot use at the same time.`,
	func(pass *analysis.Pass, b *body, n ast.Node) {
		if b.tx == nil {
			return
		}
		switch n := n.(type) {
		case *ast.GoStmt:
			if b.isUsedBy(n.Call) {
				pass.ReportRangef(n, goroutineUsesTx, b.by)
			}
		case *ast.CallExpr:
			if startsGoroutine(callee(pass.TypesInfo, n)) && b.isUsedBy(n) {
				pass.ReportRangef(n, goroutineUsesTx, b.by)
			}
		case *ast.SendStmt:
			if b.holds(n.Value, 0) {
				pass.ReportRangef(n, "the tx of %s is sent to another goroutine and ends when the function returns: send the values that were read", b.by)
			}
		case *ast.AssignStmt:
			// If a single call assigns to several variables, it is the source of all of them.
			for i, to := range n.Lhs {
				from := n.Rhs[min(i, len(n.Rhs)-1)]
				if outlivesBody(pass.TypesInfo, b, to) && !isError(pass.TypesInfo.TypeOf(to)) && b.holds(from, 0) {
					pass.ReportRangef(n,
						"the tx of %s is stored in %s and ends when the function returns: finish the work with it in the function", b.by, types.ExprString(to))
				}
			}
		case *ast.ReturnStmt:
			for _, result := range n.Results {
				// A helper, and a literal inside the body, may return the transaction to their
				// callers, because these callers are parts of the body.
				if b.holds(result, 0) && !b.helper && b.enclosingFunc(n) == b.node {
					pass.ReportRangef(n, "the tx of %s is returned and ends at the return: return the values that were read", b.by)
				}
			}
		}
	})

const goroutineUsesTx = "a goroutine uses the tx of %s, which is one connection and ends when the function returns: use the tx in the function itself"

func startsGoroutine(f *types.Func) bool {
	return isFunc(f, "golang.org/x/sync/errgroup", "Go", "TryGo") || isFunc(f, "sync", "Go") ||
		isFunc(f, "time", "AfterFunc") || isFunc(f, "context", "AfterFunc")
}

// isUsedBy reports whether call uses the transaction, or a value that contains the transaction or
// reads through it.
func (b *body) isUsedBy(call *ast.CallExpr) bool {
	return mentions(b.info, call, b.tx) || contains(call, func(id *ast.Ident) bool { return b.holds(id, 0) })
}

// outlivesBody reports whether the target of an assignment exists after the body has returned. That
// is the case for a variable from outside the body and for a field of a parameter. A parameter
// itself is a copy that ends with the function.
func outlivesBody(info *types.Info, b *body, to ast.Expr) bool {
	if id, ok := to.(*ast.Ident); ok && id.Name == "_" {
		return false
	}
	object := root(info, to)
	if object == nil {
		return false
	}
	_, isField := ast.Unparen(to).(*ast.SelectorExpr)
	return !isWithin(object, b.node) || !isWithin(object, b.block) && isField
}

// holds reports whether the value of e is the transaction, contains it, or reads through it. Unread
// rows and Queries of sqlc read through the transaction. A closure contains every variable that it
// mentions. holds follows variables at most eight deep, because variables may be assigned in a
// cycle.
func (b *body) holds(e ast.Expr, deep int) bool {
	switch x := ast.Unparen(e).(type) {
	case *ast.Ident:
		return b.info.Uses[x] == b.tx || deep < 8 && b.isAssignedTx(x, deep+1)
	case *ast.UnaryExpr:
		return b.holds(x.X, deep)
	case *ast.CompositeLit:
		return b.holdsAny(x.Elts, deep)
	case *ast.KeyValueExpr: // an element of a composite literal
		return b.holds(x.Value, deep)
	case *ast.FuncLit:
		return mentions(b.info, x, b.tx)
	case *ast.CallExpr:
		return b.returnsHolder(x, deep)
	}
	return false
}

func (b *body) holdsAny(exprs []ast.Expr, deep int) bool {
	return slices.ContainsFunc(exprs, func(e ast.Expr) bool { return b.holds(e, deep) })
}

// isAssignedTx reports whether the transaction, or a value that contains it, is assigned to a local
// variable or to one of its fields. A variable with several assignments does not count, because the
// order of execution decides which assignment is valid at the use, and idemvet must not report
// correct programs.
func (b *body) isAssignedTx(id *ast.Ident, deep int) bool {
	object := b.info.Uses[id]
	if !isWithin(object, b.block) || isError(object.Type()) {
		return false
	}
	set := b.assigned[object]
	return len(set) == 1 && b.holds(set[0], deep) || b.holdsAny(b.assignedFields[object], deep)
}

// returnsHolder reports whether call receives the transaction and returns a value that contains it.
// The type of the first result decides, because a function may also return plain values that it has
// read with the transaction. For a builtin such as append, the arguments decide.
func (b *body) returnsHolder(call *ast.CallExpr, deep int) bool {
	if b.info.Types[call.Fun].IsBuiltin() {
		return b.holdsAny(call.Args, deep)
	}
	t := b.firstResult(call)
	return t != nil && mentions(b.info, call, b.tx) && (isTx(t) || isLazyReader(t) || takesTx(t) || isNamed(t, pgx, "Conn"))
}

// isLazyReader reports whether a value of type t, such as pgx.Rows, still needs its connection when
// it is used.
func isLazyReader(t types.Type) bool {
	path, name := named(t)
	return (path == pgx || path == "database/sql") && (name == "Rows" || name == "Row" || name == "BatchResults" || name == "Stmt")
}

func isError(t types.Type) bool {
	return t != nil && types.Identical(t, types.Universe.Lookup("error").Type())
}
