package idemvet

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// Outside finds effects that are not in the transaction.
var Outside = rule("idemoutside", `find writes beside the transaction of idem

What a function does by a pool, or by another connection, is committed on its own: it stays if the transaction is rolled back, and is done
again when the function is. It has to be done by the tx that the function is given.`, outside)

func outside(pass *analysis.Pass, b *body, n ast.Node) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return
	}
	info := pass.TypesInfo
	if mentions(info, call, b.tx) || b.joinsTx(call) {
		for _, inner := range chain(call) {
			b.fine[inner] = true
		}
	}
	if b.fine[call] {
		return
	}
	fun := ast.Unparen(call.Fun)
	if set, ok := b.only(fun); ok {
		fun = ast.Unparen(set) // exec := pool.Exec
	}
	if to, ok := fun.(*ast.SelectorExpr); ok {
		if isOutside(pass, b, to) {
			pass.ReportRangef(call, "%s is not in the transaction of %s: do it by the tx that the function is given, or it stays when that is rolled back", to.Sel.Name, b.by)
			return
		}
	}
	if f := callee(info, call); f != nil && f.Pkg() == pass.Pkg {
		return // it is looked at where it does something
	}
	argumentsOutside(pass, b, call)
}

// isOutside reports whether a method is one of a pool, or of what has a connection of its own, and touches data.
func isOutside(pass *analysis.Pass, b *body, to *ast.SelectorExpr) bool {
	method, ok := pass.TypesInfo.Selections[to]
	return ok && (isOfPool(method) || isBeside(pass, b, to.X)) && to.Sel.Name != "WithTx" && !isHarmless[to.Sel.Name]
}

// argumentsOutside finds pools and the like that a function of another package is given.
func argumentsOutside(pass *analysis.Pass, b *body, call *ast.CallExpr) {
	for _, arg := range call.Args {
		if isBeside(pass, b, arg) {
			pass.ReportRangef(arg, "what this call does by %s is not in the transaction of %s: give it the tx of the function", types.ExprString(arg), b.by)
		}
	}
}

// joinsTx reports whether a call makes a *gorm.DB that is then set to the transaction: db.Statement.ConnPool = tx.
func (b *body) joinsTx(call *ast.CallExpr) bool {
	if b.tx == nil || !isNamed(b.info.TypeOf(call), "gorm.io/gorm", "DB") {
		return false
	}
	return slices.ContainsFunc(b.fields[b.assignedTo(call)], func(set ast.Expr) bool { return b.holds(set, 0) })
}

// chain returns the calls that a call begins with: of db.NewInsert().Conn(tx).Exec(ctx) all three.
func chain(call *ast.CallExpr) []*ast.CallExpr {
	calls := []*ast.CallExpr{call}
	for {
		to, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		if !ok {
			return calls
		}
		if call, ok = ast.Unparen(to.X).(*ast.CallExpr); !ok {
			return calls
		}
		calls = append(calls, call)
	}
}

// isHarmless are methods of a pool that touch no data.
var isHarmless = map[string]bool{"Config": true, "Stat": true, "Stats": true, "TypeMap": true, "IsClosed": true, "PgConn": true}

// isOfPool reports whether a method is one of a pool that is embedded. A connection that is embedded may be that of the transaction.
func isOfPool(method *types.Selection) bool {
	f, ok := method.Obj().(*types.Func)
	if !ok || len(method.Index()) < 2 || f.Signature().Recv() == nil {
		return false
	}
	_, name := named(f.Signature().Recv().Type())
	return name != "Conn" && opensItsOwn(f.Signature().Recv().Type())
}

// isBeside reports whether what is done by a value is not in the transaction of a body.
func isBeside(pass *analysis.Pass, b *body, e ast.Expr) bool {
	info := pass.TypesInfo
	t := info.TypeOf(e)
	if t == nil || mentions(info, e, b.tx) || b.isGiven(e) {
		return false
	}
	from := root(info, e)
	if opensItsOwn(t) {
		return !isOfTx(pass, b, e)
	}
	isOutside := from != nil && !isWithin(from, b.block) && from != b.tx && !(b.helper && isWithin(from, b.node))
	if _, ok := from.(*types.Var); !ok || !isOutside {
		return false
	}
	return takesTx(t) || isTx(t) && !b.shares && b.tx != nil
}

// isGiven reports whether a call is given a transaction of the body's own, such as a savepoint: queries.WithTx(savepoint).
func (b *body) isGiven(e ast.Expr) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			for _, arg := range call.Args {
				object := b.variable(arg)
				found = found || object != nil && isTx(object.Type()) && isWithin(object, b.node)
			}
		}
		return !found
	})
	return found
}

// isOfTx reports whether a connection is that of the transaction: tx.Conn(), or a variable that has it.
func isOfTx(pass *analysis.Pass, b *body, e ast.Expr) bool {
	if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
		if to, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && to.Sel.Name == "Conn" {
			return isTx(pass.TypesInfo.TypeOf(to.X))
		}
	}
	if set, ok := b.only(e); ok {
		return isOfTx(pass, b, set)
	}
	return false
}
