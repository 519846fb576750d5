package idemvet

import (
	"go/ast"
	"go/token"
	"go/types"
)

// checkVariables reports variables that are assigned in the function of a step and read by later
// code. On a replay the step returns its recorded value without calling its function, so the
// variable keeps its old value.
func (r *replays) checkVariables(block *ast.BlockStmt) {
	ast.Inspect(block, func(n ast.Node) bool {
		statement, ok := n.(ast.Stmt)
		if !ok {
			return true
		}
		for step := range r.stepsOf(statement) {
			for _, arg := range step.Args {
				if literal, ok := ast.Unparen(arg).(*ast.FuncLit); ok {
					r.reportAssigned(literal, statement, block)
				}
			}
		}
		return true
	})
}

// stepsOf yields the calls in a statement that are steps of an operation. It does not enter nested
// statements.
func (r *replays) stepsOf(statement ast.Stmt) func(yield func(*ast.CallExpr) bool) {
	return func(yield func(*ast.CallExpr) bool) {
		ast.Inspect(statement, func(n ast.Node) bool {
			if inner, ok := n.(ast.Stmt); ok && inner != statement {
				return false
			}
			call, ok := n.(*ast.CallExpr)
			return !ok || !r.isStep(call) || yield(call)
		})
	}
}

// reportAssigned reports variables of block that literal assigns and later code reads. literal is
// the function of a step in statement. Error variables are exempt, because later code rarely reads
// an err that the function of a step has set. Variables to which statement itself assigns the
// result of the step are exempt too, because a replay assigns the recorded value to them.
func (r *replays) reportAssigned(literal *ast.FuncLit, statement ast.Stmt, block *ast.BlockStmt) {
	ast.Inspect(literal.Body, func(n ast.Node) bool {
		var targets []ast.Expr
		switch n := n.(type) {
		case *ast.AssignStmt:
			targets = n.Lhs
		case *ast.IncDecStmt:
			targets = []ast.Expr{n.X}
		case *ast.UnaryExpr: // the address of a variable: Scan, for example, assigns through it
			if n.Op == token.AND {
				targets = []ast.Expr{n.X}
			}
		}
		for _, target := range targets {
			id, ok := ast.Unparen(target).(*ast.Ident)
			if !ok {
				continue
			}
			v, ok := r.info.Uses[id].(*types.Var)
			// isOuter says that v is declared in the function of the operation, before the function
			// of the step.
			isOuter := ok && block.Pos() < v.Pos() && v.Pos() < literal.Pos()
			if isOuter && !isError(v.Type()) && !assigns(r.info, statement, v) && r.isReadAfter(v, literal, block) {
				r.pass.ReportRangef(id,
					"the function of a step sets %s, but it does not run again once the step is recorded: return the value from the step", id.Name)
			}
		}
		return true
	})
}

// assigns reports whether statement itself assigns to v, for example the result of a step.
func assigns(info *types.Info, statement ast.Stmt, v *types.Var) bool {
	assignment, ok := statement.(*ast.AssignStmt)
	if !ok {
		return false
	}
	for _, target := range assignment.Lhs {
		if id, ok := target.(*ast.Ident); ok && (info.Uses[id] == v || info.Defs[id] == v) {
			return true
		}
	}
	return false
}

// isReadAfter reports whether code after literal reads v. Function literals that assign to v
// themselves do not count, because such a step usually uses the variable only for itself.
func (r *replays) isReadAfter(v *types.Var, literal *ast.FuncLit, block *ast.BlockStmt) (read bool) {
	ast.Inspect(block, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return n.End() > literal.End() && !r.assignsWithin(n, v)
		case *ast.Ident:
			read = read || n.Pos() > literal.End() && r.info.Uses[n] == v
		}
		return !read
	})
	return read
}

// assignsWithin reports whether literal contains a statement that assigns to v.
func (r *replays) assignsWithin(literal *ast.FuncLit, v *types.Var) bool {
	return contains(literal.Body, func(statement ast.Stmt) bool { return assigns(r.info, statement, v) })
}
