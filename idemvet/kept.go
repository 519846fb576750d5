package idemvet

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// Kept reports transactions that are used after their function has returned, or by another
// goroutine.
var Kept = rule("idemkept", `find transactions that are kept beyond their function, or used by another goroutine

The transaction is over when the function has returned, and it is one connection: two goroutines cannot use it at a time.`,
	func(pass *analysis.Pass, b *body, n ast.Node) {
		if b.tx == nil {
			return
		}
		switch n := n.(type) {
		case *ast.GoStmt:
			if b.isUsedBy(n.Call) {
				pass.ReportRangef(n, "a goroutine uses the tx of %s, which is one connection and is over when the function returns: use it in the function itself", b.by)
			}
		case *ast.CallExpr:
			if startsGoroutine(callee(pass.TypesInfo, n)) && b.isUsedBy(n) {
				pass.ReportRangef(n, "a goroutine uses the tx of %s, which is one connection and is over when the function returns: use it in the function itself", b.by)
			}
		case *ast.SendStmt:
			if b.holds(n.Value, 0) {
				pass.ReportRangef(n, "the tx of %s is sent to another goroutine, and is over when the function returns: send the values that it has read", b.by)
			}
		case *ast.AssignStmt:
			// If one call has several results, all of them come from its only expression.
			for i, to := range n.Lhs {
				from := n.Rhs[min(i, len(n.Rhs)-1)]
				if isElsewhere(pass.TypesInfo, b, to) && !isError(pass.TypesInfo.TypeOf(to)) && b.holds(from, 0) {
					pass.ReportRangef(n, "the tx of %s is kept in %s, and is over when the function returns: finish with it in the function", b.by, types.ExprString(to))
				}
			}
		case *ast.ReturnStmt:
			for _, result := range n.Results {
				// A helper may return the transaction to its caller. So may a literal inside of the
				// body.
				if b.holds(result, 0) && !b.helper && b.around(n) == b.node {
					pass.ReportRangef(n, "the tx of %s is returned, and is over then: return the values that it has read", b.by)
				}
			}
		}
	})

func startsGoroutine(f *types.Func) bool {
	return isFunc(f, "golang.org/x/sync/errgroup", "Go", "TryGo") || isFunc(f, "sync", "Go") || isFunc(f, "time", "AfterFunc") || isFunc(f, "context", "AfterFunc")
}

// isUsedBy reports whether call uses the transaction, or a value that holds it.
func (b *body) isUsedBy(call *ast.CallExpr) (found bool) {
	if mentions(b.info, call, b.tx) {
		return true
	}
	ast.Inspect(call, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			found = found || b.holds(id, 0)
		}
		return !found
	})
	return found
}

// isElsewhere reports whether to, the target of an assignment, outlives the body: a variable from
// outside, or a field of a parameter.
func isElsewhere(info *types.Info, b *body, to ast.Expr) bool {
	if id, ok := to.(*ast.Ident); ok && id.Name == "_" {
		return false
	}
	object := root(info, to)
	if object == nil {
		return false
	}
	return !isWithin(object, b.node) || !isWithin(object, b.block) && to != nil && isField(to)
}

func isField(e ast.Expr) bool {
	_, ok := ast.Unparen(e).(*ast.SelectorExpr)
	return ok
}

// holds reports whether the value of e is the transaction, contains it, or reads through it. Unread
// rows and Queries of sqlc read through it.
func (b *body) holds(e ast.Expr, deep int) bool {
	switch x := ast.Unparen(e).(type) {
	case *ast.Ident:
		return b.info.Uses[x] == b.tx || deep < 8 && b.isSetToIt(x, deep+1)
	case *ast.UnaryExpr:
		return b.holds(x.X, deep)
	case *ast.CompositeLit:
		for _, element := range x.Elts {
			if field, ok := element.(*ast.KeyValueExpr); ok {
				element = field.Value
			}
			if b.holds(element, deep) {
				return true
			}
		}
	case *ast.FuncLit:
		return mentions(b.info, x, b.tx)
	case *ast.CallExpr:
		return b.returnsIt(x, deep)
	}
	return false
}

// isSetToIt reports whether a local variable or one of its fields is assigned a value that holds
// the transaction.
func (b *body) isSetToIt(id *ast.Ident, deep int) bool {
	object := b.info.Uses[id]
	if !isWithin(object, b.block) || isError(object.Type()) {
		return false
	}
	if set := b.set[object]; len(set) == 1 && b.holds(set[0], deep) {
		return true
	}
	for _, set := range b.fields[object] {
		if b.holds(set, deep) {
			return true
		}
	}
	return false
}

// returnsIt reports whether call is given the transaction and returns a value that holds it.
func (b *body) returnsIt(call *ast.CallExpr, deep int) bool {
	if b.info.Types[call.Fun].IsBuiltin() {
		for _, arg := range call.Args {
			if b.holds(arg, deep) {
				return true
			}
		}
		return false
	}
	t := b.info.TypeOf(call)
	if tuple, ok := t.(*types.Tuple); ok && tuple.Len() > 0 {
		t = tuple.At(0).Type()
	}
	return t != nil && mentions(b.info, call, b.tx) && (isTx(t) || isReader(t) || takesTx(t) || isNamed(t, pgx, "Conn"))
}

// isReader reports whether t is a result that reads from its connection lazily.
func isReader(t types.Type) bool {
	path, name := named(t)
	return (path == pgx || path == "database/sql") && (name == "Rows" || name == "Row" || name == "BatchResults" || name == "Stmt")
}

func isError(t types.Type) bool {
	return t != nil && types.Identical(t, types.Universe.Lookup("error").Type())
}
