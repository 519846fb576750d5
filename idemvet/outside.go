package idemvet

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// Outside is the analyzer that reports writes that are not in the transaction of idem.
var Outside = rule("idemoutside", `find writes outside the transaction of idem

A write through a pool, or through another connection, commits on its own. It stays if the transaction is rolled back, and a retry repeats it. Write
with the tx that the function receives.`, outside)

// outside reports a call in a body if the call works through a pool or another connection, or
// passes a pool or connection to another package.
//
// A query builder may receive its connection anywhere in a method chain. In
// db.NewInsert().Conn(tx).Exec(ctx), only the call in the middle mentions the transaction. outside
// therefore accepts all calls of a chain that mentions the transaction. It is called for the
// outermost call first, and so sees the whole chain before its parts.
func outside(pass *analysis.Pass, b *body, n ast.Node) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return
	}
	info := pass.TypesInfo
	if mentions(info, call, b.tx) || b.joinsTx(call) {
		for _, inner := range chain(call) {
			b.accepted[inner] = true
		}
	}
	if b.accepted[call] {
		return
	}
	fun := ast.Unparen(call.Fun)
	if set, ok := b.soleValue(fun); ok {
		fun = ast.Unparen(set) // exec := pool.Exec
	}
	if to, ok := fun.(*ast.SelectorExpr); ok {
		if callsOutsideTx(pass, b, to) {
			pass.ReportRangef(call,
				"%s runs outside the transaction of %s, so a rollback does not undo it: use the tx that the function receives", to.Sel.Name, b.by)
			return
		}
	}
	if f := callee(info, call); f != nil && f.Pkg() == pass.Pkg {
		return // the rule examines the called function itself, because it is in the same package
	}
	argumentsOutside(pass, b, call)
}

// callsOutsideTx reports whether the selector to is a method that accesses data through a pool, or
// through another value with a connection of its own.
func callsOutsideTx(pass *analysis.Pass, b *body, to *ast.SelectorExpr) bool {
	method, ok := pass.TypesInfo.Selections[to]
	return ok && (isPoolMethod(method) || isOutsideTx(pass, b, to.X)) && to.Sel.Name != "WithTx" && !touchesNoData[to.Sel.Name]
}

// argumentsOutside reports arguments that have a connection of their own. The parameter call is a
// call to another package.
func argumentsOutside(pass *analysis.Pass, b *body, call *ast.CallExpr) {
	for _, arg := range call.Args {
		if isOutsideTx(pass, b, arg) {
			pass.ReportRangef(arg, "this call works through %s, outside the transaction of %s: pass it the tx of the function", types.ExprString(arg), b.by)
		}
	}
}

// joinsTx reports whether call returns a *gorm.DB that the program then binds to the transaction:
// db.Statement.ConnPool = tx.
func (b *body) joinsTx(call *ast.CallExpr) bool {
	if b.tx == nil || !isNamed(b.info.TypeOf(call), "gorm.io/gorm", "DB") {
		return false
	}
	return b.holdsAny(b.assignedFields[b.assignedTo(call)], 0)
}

// chain returns all calls of the method chain that ends with call, for example the three calls of
// db.NewInsert().Conn(tx).Exec(ctx).
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

// touchesNoData lists the methods of a pool that read only the state or configuration of the pool.
var touchesNoData = map[string]bool{"Config": true, "Stat": true, "Stats": true, "TypeMap": true, "IsClosed": true, "PgConn": true}

// isPoolMethod reports whether method belongs to a pool that is embedded in a struct. An embedded
// single connection does not count, because it may be the connection of the transaction.
func isPoolMethod(method *types.Selection) bool {
	f, ok := method.Obj().(*types.Func)
	if !ok || len(method.Index()) < 2 || f.Signature().Recv() == nil {
		return false
	}
	_, name := named(f.Signature().Recv().Type())
	return name != "Conn" && hasOwnConnection(f.Signature().Recv().Type())
}

// isOutsideTx reports whether statements through e run outside the transaction that the function
// received from idem.
func isOutsideTx(pass *analysis.Pass, b *body, e ast.Expr) bool {
	info := pass.TypesInfo
	t := info.TypeOf(e)
	if t == nil || mentions(info, e, b.tx) || b.isBoundInBody(e) {
		return false
	}
	from := root(info, e)
	if hasOwnConnection(t) {
		return !isTxConn(pass, b, e)
	}
	// A value of type Queries, *gorm.DB or Tx from outside the body uses a connection of its own. A
	// parameter of a helper does not count, because it may be bound to the transaction.
	isOutside := from != nil && !isWithin(from, b.block) && from != b.tx && !(b.helper && isWithin(from, b.node))
	if _, ok := from.(*types.Var); !ok || !isOutside {
		return false
	}
	return takesTx(t) || isTx(t) && !b.shares && b.tx != nil
}

// isBoundInBody reports whether a call in e has a transaction variable of the body as an argument,
// for example a savepoint: queries.WithTx(savepoint).
func (b *body) isBoundInBody(e ast.Expr) bool {
	isInnerTx := func(arg ast.Expr) bool {
		object := b.variable(arg)
		return object != nil && isTx(object.Type()) && isWithin(object, b.node)
	}
	return contains(e, func(call *ast.CallExpr) bool { return slices.ContainsFunc(call.Args, isInnerTx) })
}

// isTxConn reports whether e is the connection of the transaction: tx.Conn(), or a variable with
// that value.
func isTxConn(pass *analysis.Pass, b *body, e ast.Expr) bool {
	if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
		if to, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && to.Sel.Name == "Conn" {
			return isTx(pass.TypesInfo.TypeOf(to.X))
		}
	}
	if set, ok := b.soleValue(e); ok {
		return isTxConn(pass, b, set)
	}
	return false
}
