package idemvet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// Final is the analyzer that reports transport errors that are passed to operation.Final.
var Final = analyzer("idemfinal", `find transport errors in operation.Final

Final states that the other system has refused the call: the call is not made again, and attempts in doubt are settled. A timeout or a broken
connection says nothing about the outcome, and the call may have happened. Wrap such an error in operation.Unknown, or in operation.NotSent if no
connection was made.`,
	func(pass *analysis.Pass) {
		f := &finals{functionsOf(pass)}
		in := inspectorOf(pass)
		in.WithStack([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node, push bool, stack []ast.Node) bool {
			call := n.(*ast.CallExpr)
			if push && isFunc(callee(pass.TypesInfo, call), library+"/operation", "Final") && f.isTransport(call.Args[0], stack, 0) {
				pass.ReportRangef(call, "Final settles this call because of a transport error, but the call may have happened: "+
					"return operation.Unknown(err), or operation.NotSent(err) if no connection was made")
			}
			return push
		})
	})

// finals implements the analyzer Final for one package.
type finals struct{ *functions }

// isTransport reports whether e, or an error that e wraps, is a transport error: the error of a
// request, of a context, or of package net. After a transport error, the caller does not know
// whether the call happened.
//
// If e is a variable, isTransport first examines the conditions around the use of e. If no
// condition decides, isTransport examines the last value that was assigned to the variable.
func (f *finals) isTransport(e ast.Expr, stack []ast.Node, deep int) bool {
	e = ast.Unparen(e)
	if deep > 8 {
		return false
	}
	if isTransportType(f.info.TypeOf(e)) || f.isTransportValue(e) {
		return true
	}
	if call, ok := e.(*ast.CallExpr); ok {
		if to := callee(f.info, call); isFunc(to, "fmt", "Errorf") || isFunc(to, "errors", "Join") {
			return slices.ContainsFunc(call.Args, func(arg ast.Expr) bool { return f.isTransport(arg, stack, deep+1) })
		}
		return f.returnsTransport(call, deep)
	}
	variable := f.variable(e)
	if variable == nil || !isError(variable.Type()) {
		return false
	}
	// A condition around the use may prove that the variable is a transport error there, or may
	// test for another kind of error. In both cases the last assignment does not matter.
	proven, open := f.conditionsProve(variable, stack)
	if proven || !open {
		return proven
	}
	set := f.lastAssigned(variable, e)
	return set != nil && f.isTransport(set, stack, deep+1)
}

// isTransportType reports whether t is one of the error types of package net or net/url for a
// failed connection or request.
func isTransportType(t types.Type) bool {
	if t == nil {
		return false
	}
	switch path, name := named(t); path {
	case "net":
		return name == "Error" || name == "OpError" || name == "DNSError"
	case "net/url":
		return name == "Error"
	}
	return false
}

// isTransportValue reports whether e is an error variable for the failure of a context or a
// connection, such as context.DeadlineExceeded.
func (f *finals) isTransportValue(e ast.Expr) bool {
	name := nameOf(e)
	if name == nil {
		return false
	}
	v, ok := f.info.Uses[name].(*types.Var)
	if !ok || v.Pkg() == nil {
		return false
	}
	switch v.Pkg().Path() + "." + v.Name() {
	case "context.DeadlineExceeded", "context.Canceled", "os.ErrDeadlineExceeded", "io.ErrUnexpectedEOF", "net.ErrClosed":
		return true
	}
	return false
}

// returnsTransport reports whether the error that call returns is a transport error. That is the
// case if call sends a request, gets the error of a context, or reads the body of a response, or if
// it calls a function in the package that does so.
func (f *finals) returnsTransport(call *ast.CallExpr, deep int) bool {
	to := callee(f.info, call)
	if isFunc(to, "io", "ReadAll") {
		body, ok := ast.Unparen(call.Args[0]).(*ast.SelectorExpr)
		return ok && body.Sel.Name == "Body" && isNamed(f.info.TypeOf(body.X), "net/http", "Response")
	}
	return isRequest(to) || isFunc(to, "context", "Err", "Cause") || f.passesTransport(f.declared[to], deep)
}

// passesTransport reports whether decl, a function in the package, returns a transport error,
// possibly wrapped.
func (f *finals) passesTransport(decl *ast.FuncDecl, deep int) (found bool) {
	if decl == nil || decl.Body == nil {
		return false
	}
	var stack []ast.Node
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		if _, ok := n.(*ast.FuncLit); ok || found {
			return false
		}
		stack = append(stack, n)
		if back, ok := n.(*ast.ReturnStmt); ok && len(back.Results) > 0 {
			found = f.isTransport(back.Results[len(back.Results)-1], stack, deep+1)
		}
		return true
	})
	return found
}

// conditionsProve examines the conditions around a use of an error variable. transport is true if a
// condition is true only for transport errors. open is true if no condition tests for another kind
// of error.
//
// The condition of an if statement counts only inside its body, and not in the else branch. A case
// with several conditions proves none of them.
func (f *finals) conditionsProve(variable types.Object, stack []ast.Node) (transport, open bool) {
	open = true
	for i, n := range stack {
		var conditions []ast.Expr
		switch n := n.(type) {
		case *ast.IfStmt:
			if i+1 < len(stack) && stack[i+1] == n.Body {
				conditions = []ast.Expr{n.Cond}
				transport = transport || f.assertsTransport(n, variable)
			}
		case *ast.CaseClause:
			conditions = n.List
		}
		for _, condition := range conditions {
			proven, tests := f.proves(condition, variable)
			transport = transport || proven && len(conditions) == 1
			open = open && (proven || !tests)
		}
	}
	return transport, open
}

// assertsTransport reports whether the body of the if statement n runs only for a transport error,
// because its init statement asserts the type: if _, ok := err.(net.Error); ok.
func (f *finals) assertsTransport(n *ast.IfStmt, variable types.Object) bool {
	set, ok := n.Init.(*ast.AssignStmt)
	if !ok || len(set.Rhs) != 1 || len(set.Lhs) != 2 {
		return false
	}
	held, ok := set.Lhs[1].(*ast.Ident)
	if !ok || !f.implies(n.Cond, f.info.Defs[held]) {
		return false
	}
	switch x := set.Rhs[0].(type) {
	case *ast.TypeAssertExpr:
		return f.variable(x.X) == variable && isTransportType(f.info.TypeOf(x.Type))
	case *ast.CallExpr: // failed, ok := errors.AsType[net.Error](err)
		results, ok := f.info.TypeOf(x).(*types.Tuple)
		return ok && isFunc(callee(f.info, x), "errors", "AsType") && f.variable(x.Args[0]) == variable && isTransportType(results.At(0).Type())
	}
	return false
}

// implies reports whether a true condition implies that the Boolean variable in held is true. That
// is the case if condition is the variable itself, or joins it to other conditions with &&.
func (f *finals) implies(condition ast.Expr, held types.Object) bool {
	if both, ok := ast.Unparen(condition).(*ast.BinaryExpr); ok && both.Op == token.LAND {
		return f.implies(both.X, held) || f.implies(both.Y, held)
	}
	return held != nil && f.variable(condition) == held
}

// proves reports whether condition implies that the error in variable is a transport error. tests
// reports whether condition tests the kind of the error at all. A comparison with nil does not test
// the kind.
func (f *finals) proves(condition ast.Expr, variable types.Object) (transport, tests bool) {
	switch x := ast.Unparen(condition).(type) {
	case *ast.BinaryExpr:
		if x.Op == token.LAND || x.Op == token.LOR {
			return f.joinedProve(x, variable)
		}
		if f.info.Types[x.Y].IsNil() {
			return false, false
		}
		if x.Op == token.EQL && f.variable(x.X) == variable && f.isTransportValue(x.Y) {
			return true, true
		}
	case *ast.CallExpr:
		if f.testsForTransport(x, variable) {
			return true, true
		}
	}
	return false, mentions(f.info, condition, variable)
}

// joinedProve does the same as proves for two conditions that are joined by && or ||.
func (f *finals) joinedProve(joined *ast.BinaryExpr, variable types.Object) (transport, tests bool) {
	x, testsX := f.proves(joined.X, variable)
	y, testsY := f.proves(joined.Y, variable)
	if joined.Op == token.LOR {
		return x && y, testsX || testsY
	}
	// A part that tests for another kind of error excludes transport errors: err != nil &&
	// errors.As(err, &declined).
	isOther := testsX && !x || testsY && !y
	return (x || y) && !isOther, testsX || testsY
}

// testsForTransport reports whether a call expression, such as os.IsTimeout(err), checks if the
// error in variable is a transport error.
func (f *finals) testsForTransport(call *ast.CallExpr, variable types.Object) bool {
	if len(call.Args) == 0 || f.variable(call.Args[0]) != variable {
		return false
	}
	switch to := callee(f.info, call); {
	case isFunc(to, "os", "IsTimeout"):
		return true
	case isFunc(to, "errors", "Is"):
		return f.isTransportValue(ast.Unparen(call.Args[1]))
	case isFunc(to, "errors", "As"):
		pointer, ok := f.info.TypeOf(call.Args[1]).(*types.Pointer)
		return ok && isTransportType(pointer.Elem())
	}
	return false
}

// lastAssigned returns the last expression that is assigned to variable before the given use in the
// same function. It returns nil if the assignment is in a branch that may not have run before the
// use.
func (f *finals) lastAssigned(variable types.Object, use ast.Expr) (last ast.Expr) {
	for _, set := range f.assigned[variable] {
		if set.End() <= use.Pos() && (last == nil || set.Pos() > last.Pos()) && f.enclosingFunc(set) == f.enclosingFunc(use) {
			last = set
		}
	}
	if last == nil {
		return nil
	}
	if block := f.enclosingBlock(last); block != nil && !within(use, block) { // nil at package level
		return nil
	}
	return last
}

// enclosingBlock returns the innermost block or switch clause that contains n.
func (f *finals) enclosingBlock(n ast.Node) (block ast.Node) {
	ast.Inspect(f.enclosingFunc(n), func(outer ast.Node) bool {
		if outer == nil || !within(n, outer) {
			return false
		}
		switch outer.(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
			block = outer
		}
		return true
	})
	return block
}
