package idemvet

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// Ended reports functions that end the transaction that they received from idem.
var Ended = rule("idemended", `find functions that commit or roll back the transaction of idem

idem ends the transaction, together with the record. To undo the writes, a function returns an error.`,
	func(pass *analysis.Pass, b *body, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		fun := ast.Unparen(call.Fun)
		if set, ok := b.soleValue(fun); ok {
			fun = ast.Unparen(set) // end := tx.Commit
		}
		to, ok := fun.(*ast.SelectorExpr)
		switch {
		case !ok:
		case b.endsTx(to), b.endsBySQL(to, call):
			pass.ReportRangef(call,
				"%s ends the transaction of %s, which idem ends together with its record: remove it, and return an error to undo the writes", to.Sel.Name, b.by)
		case b.beginsOnConn(to, call):
			pass.ReportRangef(call,
				"%s on this connection begins no savepoint, and its Commit ends the transaction of %s: call Begin on the tx", to.Sel.Name, b.by)
		}
	})

// endsTx reports whether to is Commit or Rollback of the transaction of the body.
func (b *body) endsTx(to *ast.SelectorExpr) bool {
	return (to.Sel.Name == "Commit" || to.Sel.Name == "Rollback") && isTx(b.info.TypeOf(to.X)) && b.isBodyTx(to.X)
}

// isBodyTx reports whether e is the transaction of the body, directly or under another name. A
// savepoint is not: the body that began it must end it.
func (b *body) isBodyTx(e ast.Expr) bool {
	e = ast.Unparen(e)
	if call, ok := e.(*ast.CallExpr); ok {
		return b.returnsBodyTx(call)
	}
	id, ok := e.(*ast.Ident)
	if !ok {
		return false
	}
	if set, ok := b.soleValue(id); ok && b.info.Uses[id] != b.tx {
		set = ast.Unparen(set)
		if call, ok := set.(*ast.CallExpr); ok {
			return b.returnsBodyTx(call)
		}
		other, ok := set.(*ast.Ident)
		return ok && b.tx != nil && b.info.Uses[other] == b.tx && !b.isSavepoint(other)
	}
	return b.tx != nil && b.info.Uses[id] == b.tx && !b.isSavepoint(id)
}

// returnsBodyTx reports whether call returns the transaction of the body: idemhttp.Tx(ctx) or
// idemsql.SQLTx(tx).
func (b *body) returnsBodyTx(call *ast.CallExpr) bool {
	to := callee(b.info, call)
	if to == nil || !ofIdem(to.Pkg()) || len(call.Args) != 1 {
		return false
	}
	return to.Name() == "Tx" || to.Name() == "SQLTx" && b.isBodyTx(call.Args[0])
}

// isOnTxConn reports whether statements through e run on the connection of the transaction: e is
// the transaction, tx.Conn() or a savepoint.
func (b *body) isOnTxConn(e ast.Expr, deep int) bool {
	if b.tx != nil && b.variable(e) == b.tx || b.isBodyTx(e) {
		return true
	}
	if set, ok := b.soleValue(e); ok && deep < 8 {
		return b.isOnTxConn(set, deep+1)
	}
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	to, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	return ok && isFunc(callee(b.info, call), pgx, "Conn", "PgConn", "Begin") && b.isOnTxConn(to.X, deep+1)
}

// endsBySQL reports whether call executes or queues a constant SQL text that ends the transaction.
// The driver knows the connection behind a batch only when the batch is sent, so any batch of the
// function counts.
func (b *body) endsBySQL(to *ast.SelectorExpr, call *ast.CallExpr) bool {
	f, ok := b.info.Uses[to.Sel].(*types.Func)
	if !ok || f.Pkg() == nil {
		return false
	}
	if path := f.Pkg().Path(); path != pgx && path != pgx+"/pgconn" && path != "database/sql" {
		return false
	}
	isOfBatch := receiver(f) == "Batch" && isWithin(root(b.info, to.X), b.node)
	return (isOfBatch || b.isOnTxConn(to.X, 0)) && endsTransaction(b.sqlOf(f, call))
}

// sqlOf returns the constant SQL text among the arguments of a driver method, or "". The methods of
// pgx and database/sql have it at different positions, but always name the parameter sql or query.
func (b *body) sqlOf(f *types.Func, call *ast.CallExpr) string {
	params := f.Signature().Params()
	for i := range min(params.Len(), len(call.Args)) {
		if name := params.At(i).Name(); name != "sql" && name != "query" {
			continue
		}
		arg := call.Args[i]
		if set, ok := b.soleValue(arg); ok {
			arg = set
		}
		if text := b.text(arg); text != "" {
			return text
		}
	}
	return ""
}

// beginsOnConn reports whether call begins a transaction on the connection of the transaction.
// Begin of a pgx.Tx creates a savepoint. Begin of a pgx.Conn sends BEGIN, which does nothing inside
// of a transaction, and its COMMIT then ends the outer one.
func (b *body) beginsOnConn(to *ast.SelectorExpr, call *ast.CallExpr) bool {
	by := to.X
	switch f := callee(b.info, call); {
	// pgx.BeginFunc takes the connection as an argument.
	case isFunc(f, pgx, "BeginFunc", "BeginTxFunc") && len(call.Args) > 1:
		by = call.Args[1]
	case !isFunc(f, pgx, "Begin", "BeginTx"):
		return false
	}
	return isNamed(b.info.TypeOf(by), pgx, "Conn") && b.isOnTxConn(by, 0)
}

// isSavepoint reports whether the variable holds a savepoint at this use. The program may reuse the
// name of the transaction: tx, err := tx.Begin(ctx). So the position of the use matters: before the
// assignment, the same variable is the transaction.
func (b *body) isSavepoint(tx *ast.Ident) bool {
	for _, set := range b.assigned[b.info.Uses[tx]] {
		call, ok := ast.Unparen(set).(*ast.CallExpr)
		if ok && call.End() <= tx.Pos() && isFunc(callee(b.info, call), pgx, "Begin") {
			return true
		}
	}
	return false
}
