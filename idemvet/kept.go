package idemvet

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// Kept finds transactions that outlive their function.
var Kept = rule("idemkept", `find transactions that are kept beyond their function, or used by another goroutine

The transaction is over when the function has returned, and it is one connection: two goroutines cannot use it at a time.`,
	func(pass *analysis.Pass, b *body, n ast.Node) {
		if b.tx == nil {
			return
		}
		info := pass.TypesInfo
		switch n := n.(type) {
		case *ast.GoStmt:
			if mentions(info, n.Call, b.tx) {
				pass.ReportRangef(n, "a goroutine uses the tx of %s, which is one connection and is over when the function returns", b.by)
			}
		case *ast.CallExpr:
			if f := callee(info, n); startsGoroutine(f) && mentions(info, n, b.tx) {
				pass.ReportRangef(n, "a goroutine uses the tx of %s, which is one connection and is over when the function returns", b.by)
			}
		case *ast.SendStmt:
			if holds(info, n.Value, b.tx) {
				pass.ReportRangef(n, "the tx of %s is sent away, and is over when the function returns", b.by)
			}
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				from := n.Rhs[min(i, len(n.Rhs)-1)]
				if isElsewhere(info, b, to) && holds(info, from, b.tx) {
					pass.ReportRangef(n, "the tx of %s is kept in %s, and is over when the function returns", b.by, types.ExprString(to))
				}
			}
		case *ast.ReturnStmt:
			for _, result := range n.Results {
				if holds(info, result, b.tx) && !b.helper && b.around(n) == b.node {
					pass.ReportRangef(n, "the tx of %s is returned, and is over then", b.by)
				}
			}
		}
	})

func startsGoroutine(f *types.Func) bool {
	return isFunc(f, "golang.org/x/sync/errgroup", "Go", "TryGo") || isFunc(f, "sync", "Go") || isFunc(f, "time", "AfterFunc") || isFunc(f, "context", "AfterFunc")
}

// isElsewhere reports whether an expression that is assigned to is not a part of the body's.
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

// holds reports whether a value is a transaction, or has it in it, or reads by it: rows that are not read yet, queries of sqlc.
func holds(info *types.Info, e ast.Expr, tx types.Object) bool {
	switch x := ast.Unparen(e).(type) {
	case *ast.Ident:
		return info.Uses[x] == tx
	case *ast.UnaryExpr:
		return holds(info, x.X, tx)
	case *ast.CompositeLit:
		for _, element := range x.Elts {
			if field, ok := element.(*ast.KeyValueExpr); ok {
				element = field.Value
			}
			if holds(info, element, tx) {
				return true
			}
		}
	case *ast.FuncLit:
		return mentions(info, x, tx)
	case *ast.CallExpr:
		t := info.TypeOf(x)
		if tuple, ok := t.(*types.Tuple); ok && tuple.Len() > 0 {
			t = tuple.At(0).Type()
		}
		if tv := info.Types[x.Fun]; tv.IsBuiltin() {
			for _, arg := range x.Args {
				if holds(info, arg, tx) {
					return true
				}
			}
			return false
		}
		return t != nil && mentions(info, x, tx) && (isTx(t) || isReader(t) || takesTx(t))
	}
	return false
}

func isReader(t types.Type) bool {
	path, name := named(t)
	return (path == pgx || path == "database/sql") && (name == "Rows" || name == "Row" || name == "BatchResults" || name == "Stmt")
}
