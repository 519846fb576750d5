package idemvet

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// Ended is the analyzer that reports functions that end the transaction that they received from
// idem.
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

// endsTx reports whether the selector to is Commit or Rollback of the transaction that the function
// received from idem.
func (b *body) endsTx(to *ast.SelectorExpr) bool {
	return (to.Sel.Name == "Commit" || to.Sel.Name == "Rollback") && isTx(b.info.TypeOf(to.X)) && b.isBodyTx(to.X)
}

// isBodyTx reports whether e is the transaction that the function received from idem, directly or
// through another variable. It returns false for a savepoint, because a function may end a
// savepoint that it has begun.
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

// returnsBodyTx reports whether call returns the transaction that the function received from idem.
// The calls idemhttp.Tx(ctx) and idemsql.SQLTx(tx) do.
func (b *body) returnsBodyTx(call *ast.CallExpr) bool {
	to := callee(b.info, call)
	if to == nil || !ofIdem(to.Pkg()) || len(call.Args) != 1 {
		return false
	}
	return to.Name() == "Tx" || to.Name() == "SQLTx" && b.isBodyTx(call.Args[0])
}

// isOnTxConn reports whether statements through e run on the connection of the transaction. That is
// the case if e is the transaction, tx.Conn() or a savepoint.
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
// A batch has no connection until it is sent, so endsBySQL assumes that every batch in the body
// runs in the transaction.
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
// pgx and database/sql take the SQL at different positions, but the parameter is always named sql
// or query.
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

// beginsOnConn reports whether call begins a transaction on the *pgx.Conn on which the transaction
// of idem runs. Begin of a pgx.Tx creates a savepoint. Begin of a pgx.Conn sends BEGIN, which does
// nothing inside a transaction, and the later COMMIT then ends the transaction of idem.
func (b *body) beginsOnConn(to *ast.SelectorExpr, call *ast.CallExpr) bool {
	by := to.X
	switch f := callee(b.info, call); {
	// pgx.BeginFunc and BeginTxFunc take the connection as an argument.
	case isFunc(f, pgx, "BeginFunc", "BeginTxFunc") && len(call.Args) > 1:
		by = call.Args[1]
	case !isFunc(f, pgx, "Begin", "BeginTx"):
		return false
	}
	return isNamed(b.info.TypeOf(by), pgx, "Conn") && b.isOnTxConn(by, 0)
}

// isSavepoint reports whether the variable is a savepoint at this use. A program may assign a
// savepoint to the variable of the transaction, as in tx, err = tx.Begin(ctx). The variable is a
// savepoint after that assignment, and the transaction before it.
func (b *body) isSavepoint(tx *ast.Ident) bool {
	for _, set := range b.assigned[b.info.Uses[tx]] {
		call, ok := ast.Unparen(set).(*ast.CallExpr)
		if ok && call.End() <= tx.Pos() && isFunc(callee(b.info, call), pgx, "Begin") {
			return true
		}
	}
	return false
}
