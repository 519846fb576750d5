package idemvet

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// Outside reports effects that are not in the transaction.
var Outside = rule("idemoutside", `find writes outside the transaction of idem

A write through a pool, or through another connection, commits on its own. It stays if the transaction is rolled back, and a retry repeats it. Write
with the tx that the function receives.`, outside)

// outside reports a call in a body that works through a pool or another connection, or passes one
// to another package.
//
// A query builder takes its connection at any place of a method chain: in
// db.NewInsert().Conn(tx).Exec(ctx), only the call in the middle names the transaction. So all
// calls of a chain that names the transaction are accepted. The walk visits the outermost call
// first, so outside sees the whole chain before its parts.
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
		return // the rule examines the function where it uses its arguments
	}
	argumentsOutside(pass, b, call)
}

// callsOutsideTx reports whether to is a method of a pool, or of another value with a connection of
// its own, and touches data.
func callsOutsideTx(pass *analysis.Pass, b *body, to *ast.SelectorExpr) bool {
	method, ok := pass.TypesInfo.Selections[to]
	return ok && (isPoolMethod(method) || isOutsideTx(pass, b, to.X)) && to.Sel.Name != "WithTx" && !touchesNoData[to.Sel.Name]
}

// argumentsOutside reports arguments, in a call to another package, that have a connection of their
// own.
func argumentsOutside(pass *analysis.Pass, b *body, call *ast.CallExpr) {
	for _, arg := range call.Args {
		if isOutsideTx(pass, b, arg) {
			pass.ReportRangef(arg, "this call works through %s, outside the transaction of %s: pass it the tx of the function", types.ExprString(arg), b.by)
		}
	}
}

// joinsTx reports whether call makes a *gorm.DB that the program then binds to the transaction:
// db.Statement.ConnPool = tx.
func (b *body) joinsTx(call *ast.CallExpr) bool {
	if b.tx == nil || !isNamed(b.info.TypeOf(call), "gorm.io/gorm", "DB") {
		return false
	}
	return b.holdsAny(b.assignedFields[b.assignedTo(call)], 0)
}

// chain returns the calls of a method chain: all three of db.NewInsert().Conn(tx).Exec(ctx).
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

// touchesNoData lists the methods of a pool that read its state or configuration only.
var touchesNoData = map[string]bool{"Config": true, "Stat": true, "Stats": true, "TypeMap": true, "IsClosed": true, "PgConn": true}

// isPoolMethod reports whether method belongs to an embedded pool. An embedded connection may be
// that of the transaction and does not count.
func isPoolMethod(method *types.Selection) bool {
	f, ok := method.Obj().(*types.Func)
	if !ok || len(method.Index()) < 2 || f.Signature().Recv() == nil {
		return false
	}
	_, name := named(f.Signature().Recv().Type())
	return name != "Conn" && hasOwnConnection(f.Signature().Recv().Type())
}

// isOutsideTx reports whether statements through e run outside the transaction of the body.
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
	// Queries, a *gorm.DB or a Tx from outside the body has a connection of its own. In a helper a
	// parameter may be bound to the transaction, so it does not count.
	isOutside := from != nil && !isWithin(from, b.block) && from != b.tx && !(b.helper && isWithin(from, b.node))
	if _, ok := from.(*types.Var); !ok || !isOutside {
		return false
	}
	return takesTx(t) || isTx(t) && !b.shares && b.tx != nil
}

// isBoundInBody reports whether a call in e receives a transaction from inside the body, such as a
// savepoint: queries.WithTx(savepoint).
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
