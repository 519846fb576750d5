package idemvet

import (
	"go/ast"
	"go/types"
)

// parameter is a parameter of a function of the package.
type parameter struct {
	of *types.Func
	at int
}

// arguments finds the arguments that are passed to parameters of functions in the package. A
// program may wrap idem.Do in a function of its own, for example in a service with a fixed scope.
// The functions that callers pass to the wrapper then run in a transaction too. Calls from other
// packages are unknown: an analyzer sees one package at a time.
type arguments struct {
	parameters map[types.Object]parameter
	calls      map[*types.Func][]*ast.CallExpr
	seen       map[types.Object]bool
}

// argumentsOf collects all parameters and calls of the package.
func argumentsOf(f *functions) *arguments {
	a := &arguments{parameters: map[types.Object]parameter{}, calls: map[*types.Func][]*ast.CallExpr{}, seen: map[types.Object]bool{}}
	for of, decl := range f.declared {
		for at := range of.Signature().Params().Len() {
			if object := f.param(decl, at); object != nil {
				a.parameters[object] = parameter{of, at}
			}
		}
	}
	for _, file := range f.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if to := callee(f.info, call); to != nil {
					a.calls[to.Origin()] = append(a.calls[to.Origin()], call)
				}
			}
			return true
		})
	}
	return a
}

// passed returns the arguments that callers pass for the parameter object. It returns nil for a
// parameter that was asked for before, which ends recursion.
func (a *arguments) passed(object types.Object) (passed []ast.Expr) {
	p, ok := a.parameters[object]
	if !ok || a.seen[object] {
		return nil
	}
	a.seen[object] = true
	for _, call := range a.calls[p.of] {
		if p.at < len(call.Args) {
			passed = append(passed, call.Args[p.at])
		}
	}
	return passed
}

// variable returns the variable that e names, or nil.
func (f *functions) variable(e ast.Expr) types.Object {
	if id, ok := ast.Unparen(e).(*ast.Ident); ok {
		if v, ok := f.info.Uses[id].(*types.Var); ok {
			return v
		}
	}
	return nil
}

// closure returns the function literal that is assigned to the variable e, if there is only one
// assignment.
func (f *functions) closure(e ast.Expr) *ast.FuncLit {
	set, ok := f.soleValue(e)
	if !ok {
		return nil
	}
	literal, _ := ast.Unparen(set).(*ast.FuncLit)
	return literal
}

// addIndirect adds the functions that call, in body b, calls through a variable: a literal assigned
// before the body, or the arguments that callers pass for a parameter.
func (f *finder) addIndirect(b *body, call *ast.CallExpr) {
	if literal := f.closure(call.Fun); literal != nil && !within(literal, b.block) {
		f.add(literal, f.txOf(b, call, literal), b.by, b.shares, true)
	}
	variable := f.variable(call.Fun)
	if of := f.declared[f.arguments.parameters[variable].of]; of == nil || of == b.node || !within(b.node, of) {
		// The variable is no parameter of a function around the body. In a helper of the package
		// that calls its argument, such as a retry loop, the arguments of calls elsewhere do not
		// run in a transaction.
		return
	}
	for _, e := range f.arguments.passed(variable) {
		for _, node := range f.resolve(e) {
			f.add(node, f.txOf(b, call, node), b.by, b.shares, true)
		}
	}
}

// txOf returns the parameter of the function node that receives the transaction of b in call, or a
// value that holds it. A savepoint does not count, because the caller may let the function end it.
func (f *finder) txOf(b *body, call *ast.CallExpr, node ast.Node) (tx types.Object) {
	if b.tx == nil {
		return nil
	}
	for i, arg := range call.Args {
		_, isFunction := f.info.TypeOf(arg).Underlying().(*types.Signature)
		if f.variable(arg) == b.tx || tx == nil && !isFunction && !isTx(f.info.TypeOf(arg)) && b.holds(arg, 0) {
			tx = f.param(node, i)
		}
	}
	return tx
}
