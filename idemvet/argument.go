package idemvet

import (
	"go/ast"
	"go/types"
)

// parameter identifies a parameter of a function in the analyzed package by the function and the
// position.
type parameter struct {
	of *types.Func
	at int
}

// arguments finds the arguments that the callers of a function pass for a parameter. A program may
// wrap idem.Do in a function of its own, for example to use a fixed scope. The functions that
// callers pass to this wrapper then run in the transaction of idem too. Calls from other packages
// are unknown, because an analyzer sees one package at a time.
type arguments struct {
	parameters map[types.Object]parameter
	calls      map[*types.Func][]*ast.CallExpr
	seen       map[types.Object]bool
}

// argumentsOf collects all parameters and calls in the package that f indexes.
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

// passed returns the arguments that callers pass for the parameter object. A second call for the
// same parameter returns nil, so that a recursive search ends.
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

// variable returns the variable whose name the expression e is, or nil.
func (f *functions) variable(e ast.Expr) types.Object {
	if id, ok := ast.Unparen(e).(*ast.Ident); ok {
		if v, ok := f.info.Uses[id].(*types.Var); ok {
			return v
		}
	}
	return nil
}

// closure returns the function literal that is assigned to the variable e. It returns nil if e is
// assigned more than once, or not a literal.
func (f *functions) closure(e ast.Expr) *ast.FuncLit {
	set, ok := f.soleValue(e)
	if !ok {
		return nil
	}
	literal, _ := ast.Unparen(set).(*ast.FuncLit)
	return literal
}

// addIndirect handles a call in the body b that calls a variable, as in fn(). It adds the functions
// that the variable may contain: a literal that is assigned to it outside of b, or, if the variable
// is a parameter, the arguments of all callers.
func (f *finder) addIndirect(b *body, call *ast.CallExpr) {
	if literal := f.closure(call.Fun); literal != nil && !within(literal, b.block) {
		f.add(literal, f.txOf(b, call, literal), b.by, b.shares, true)
	}
	variable := f.variable(call.Fun)
	if of := f.declared[f.arguments.parameters[variable].of]; of == nil || of == b.node || !within(b.node, of) {
		// The variable is not a parameter of a function around the body. It may be a parameter of
		// the body itself, for example of a retry helper. Such a helper has other callers, whose
		// arguments do not run in a transaction.
		return
	}
	for _, e := range f.arguments.passed(variable) {
		for _, node := range f.resolve(e) {
			f.add(node, f.txOf(b, call, node), b.by, b.shares, true)
		}
	}
}

// txOf returns the parameter of the function node for which call passes the transaction of b, or a
// value that contains the transaction. It ignores savepoints, because the called function may be
// meant to end a savepoint.
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
