package idemvet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ast/inspector"
)

// isRetried reports whether made, the expression that generates a key, may run again for the same
// request. That is the case in a loop that retries, in a function that is passed to a retry
// package, and in a function that such code calls. isRetried looks only one call deep, because
// usually the retry loop itself calls the function that generates the key.
func (k *keys) isRetried(in *inspector.Inspector, stack []ast.Node, made ast.Node) bool {
	if k.isInRetry(stack, made) {
		return true
	}
	fn, object := k.enclosing(made)
	if object == nil {
		return false
	}
	found := false
	in.WithStack([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node, push bool, stack []ast.Node) bool {
		call := n.(*ast.CallExpr)
		if push && !found && !within(call, fn) {
			found = k.calls(call, object) && k.isInRetry(stack, call)
		}
		return push && !found
	})
	return found
}

// enclosing returns the innermost function around n, and the object by which other code calls the
// function: the function's name, or the variable to which the literal is assigned. Both are nil if
// there is no such object.
func (k *keys) enclosing(n ast.Node) (fn ast.Node, object types.Object) {
	switch fn := k.enclosingFunc(n).(type) {
	case *ast.FuncDecl:
		return fn, k.info.Defs[fn.Name]
	case *ast.FuncLit:
		for object, set := range k.assigned {
			if len(set) == 1 && ast.Unparen(set[0]) == fn {
				return fn, object
			}
		}
	}
	return nil, nil
}

// calls reports whether call calls the function in the parameter object, or passes it to a function
// that retries. Methods of generic types are compared by their origin, because each instance has an
// object of its own.
func (k *keys) calls(call *ast.CallExpr, object types.Object) bool {
	to := callee(k.info, call)
	if to != nil && to.Origin() == object || k.variable(call.Fun) == object {
		return true
	}
	for _, arg := range call.Args {
		if name := nameOf(ast.Unparen(arg)); name != nil && k.info.Uses[name] == object && k.retriesArgument(call) {
			return true
		}
	}
	return false
}

// isInRetry reports whether the node in made is in a loop that retries, or in a function literal
// that is passed to a function that retries. Only the innermost loop counts: a loop over a list
// makes one request per element, even if an outer loop retries.
func (k *keys) isInRetry(stack []ast.Node, made ast.Node) bool {
	for i, n := range slices.Backward(stack) {
		if !within(made, n) {
			continue
		}
		switch n := n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return k.isRetryLoop(n, made.End())
		case *ast.CallExpr:
			// The call counts if made is the call itself, or is in a function literal among the call's
			// arguments.
			isArgument := n == made || i+1 < len(stack) && blockOf(stack[i+1]) != nil
			if isArgument && k.retriesArgument(n) {
				return true
			}
		}
	}
	return false
}

// retriesArgument reports whether call calls one of its arguments until the argument succeeds.
// Retry packages do so, and also calls of package operation with the policy Keyed.
func (k *keys) retriesArgument(call *ast.CallExpr) bool {
	at := policyAt(callee(k.info, call))
	return retries(callee(k.info, call)) || at >= 0 && at < len(call.Args) && k.isKeyed(call.Args[at])
}

// isRetryLoop reports whether loop repeats one request until the request succeeds. The parameter
// from is the position at which the expression of the request ends. A retry loop differs from a
// loop over elements in two ways. It ends with the first success, and if it has a range, it ranges
// over a number or a list of delays.
func (k *keys) isRetryLoop(loop ast.Node, from token.Pos) bool {
	if ranged, ok := loop.(*ast.RangeStmt); ok {
		return k.countsAttempts(ranged.X) && k.exitsAfterSuccess(ranged.Body, from)
	}
	counted := loop.(*ast.ForStmt)
	return k.untilSuccess(counted.Cond, counted.Body) || k.exitsAfterSuccess(counted.Body, from)
}

// countsAttempts reports whether a loop ranges over a number, over delays, or over the attempts of
// a retry package.
func (k *keys) countsAttempts(e ast.Expr) bool {
	if call, ok := ast.Unparen(e).(*ast.CallExpr); ok && retries(callee(k.info, call)) {
		return true
	}
	switch t := k.info.TypeOf(e).Underlying().(type) {
	case *types.Basic:
		return t.Info()&types.IsInteger != 0
	case *types.Slice:
		return isNamed(t.Elem(), "time", "Duration")
	case *types.Array:
		return isNamed(t.Elem(), "time", "Duration")
	}
	return false
}

// untilSuccess reports whether a loop with the condition cond continues while there is an error.
// The condition is err != nil, or it is !ok and the body sets ok to err == nil.
func (k *keys) untilSuccess(cond ast.Expr, body *ast.BlockStmt) bool {
	if cond == nil {
		return false
	}
	if k.comparesError(cond, token.NEQ) {
		return true
	}
	return contains(cond, func(not *ast.UnaryExpr) bool {
		return not.Op == token.NOT && slices.ContainsFunc(k.assigned[k.variable(not.X)], func(set ast.Expr) bool {
			return within(set, body) && k.comparesError(set, token.EQL)
		})
	})
}

// comparesError reports whether e contains a comparison of an error with nil by the operator op.
func (k *keys) comparesError(e ast.Node, op token.Token) bool {
	return contains(e, func(compared *ast.BinaryExpr) bool {
		return compared.Op == op && isError(k.info.TypeOf(compared.X)) && k.info.Types[compared.Y].IsNil()
	})
}

// exitsAfterSuccess reports whether the loop body leaves the loop after a successful request. The
// parameter from is the position at which the expression of the request ends. An exit does not
// count if it happens only after a failure, or if it does not depend on the outcome of the request.
// A loop that makes one request per element has at most such exits.
func (k *keys) exitsAfterSuccess(body *ast.BlockStmt, from token.Pos) (exits bool) {
	var inner []ast.Node // inner statements to which an unlabeled break applies, instead of the loop
	var look func(n ast.Node) bool
	look = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			inner = append(inner, n)
		case *ast.CommClause:
			return !k.waitsForCancel(n.Comm)
		case *ast.IfStmt:
			// An exit in the body of this if statement follows a failure, or does not depend on the request.
			// Only the else branch can contain an exit after a success.
			if k.isFailure(n.Cond) || !k.testsOutcome(n.Cond, from) {
				if n.Else != nil {
					ast.Inspect(n.Else, look)
				}
				return false
			}
		case *ast.ReturnStmt:
			exits = exits || n.Pos() > from && !k.returnsFailure(n)
		case *ast.BranchStmt:
			exits = exits || n.Pos() > from && breaksLoop(n, inner)
		}
		return !exits
	}
	ast.Inspect(body, look)
	return exits
}

// testsOutcome reports whether cond depends on the outcome of the request: on an error, a response,
// or a result of the request. A result is a variable to which the expression with the request is
// assigned. The parameter from is a position in this expression.
func (k *keys) testsOutcome(cond ast.Expr, from token.Pos) bool {
	isResult := func(set ast.Expr) bool { return set.Pos() < from && from <= set.End() }
	return contains(cond, func(e ast.Expr) bool {
		return isError(k.info.TypeOf(e)) || isNamed(k.info.TypeOf(e), "net/http", "Response") ||
			isResult(e) || slices.ContainsFunc(k.assigned[k.variable(e)], isResult)
	})
}

// breaksLoop reports whether n is a break that leaves the loop, and not one of the statements in
// inner.
func breaksLoop(n *ast.BranchStmt, inner []ast.Node) bool {
	isInner := slices.ContainsFunc(inner, func(outer ast.Node) bool { return within(n, outer) })
	return n.Tok == token.BREAK && (n.Label != nil || !isInner)
}

// waitsForCancel reports whether a select case receives from ctx.Done(). An exit in such a case
// does not follow a success.
func (k *keys) waitsForCancel(comm ast.Stmt) bool {
	if comm == nil {
		return false // the default case of the select statement
	}
	return contains(comm, func(call *ast.CallExpr) bool { return isFunc(callee(k.info, call), "context", "Done") })
}

// isFailure reports whether cond tests for a failure: err != nil, or errors.Is(err, …).
func (k *keys) isFailure(cond ast.Expr) bool {
	call, ok := ast.Unparen(cond).(*ast.CallExpr)
	return k.comparesError(cond, token.NEQ) || ok && isFunc(callee(k.info, call), "errors", "Is", "As")
}

// returnsFailure reports whether a return statement returns an error that cannot be nil: a new
// error, a package variable, or the error of a context. Any other variable, such as err, may be
// nil.
func (k *keys) returnsFailure(back *ast.ReturnStmt) bool {
	if len(back.Results) == 0 {
		return false
	}
	last := ast.Unparen(back.Results[len(back.Results)-1])
	if call, ok := last.(*ast.CallExpr); ok {
		to := callee(k.info, call)
		return isFunc(to, "errors", "New", "Join") || isFunc(to, "fmt", "Errorf") || isFunc(to, "context", "Err", "Cause")
	}
	name := nameOf(last)
	if name == nil {
		return false
	}
	v, ok := k.info.Uses[name].(*types.Var)
	return ok && isError(v.Type()) && v.Parent() == v.Pkg().Scope()
}

// retries reports whether f calls a function until the function succeeds. It judges only by the
// name of f and the path of its package.
func retries(f *types.Func) bool {
	if f == nil || f.Pkg() == nil {
		return false
	}
	path := f.Pkg().Path()
	return strings.Contains(path, "backoff") || strings.Contains(path, "retry") || strings.Contains(f.Name(), "Retry")
}
