package idemvet

import (
	"go/ast"
	"go/types"
)

// parameter is a parameter of a function of the package. The analyzer knows the arguments of all
// calls in the package.
type parameter struct {
	of *types.Func
	at int
}

// through finds the arguments that are passed to parameters of functions in the package. A program
// may wrap idem.Do in a function of its own, for example in a service with a fixed scope. The
// functions that callers pass to the wrapper then run in a transaction too.
type through struct {
	parameters map[types.Object]parameter
	calls      map[*types.Func][]*ast.CallExpr
	met        map[types.Object]bool
}

// throughOf collects all parameters and calls of the package.
func throughOf(f *functions) *through {
	t := &through{parameters: map[types.Object]parameter{}, calls: map[*types.Func][]*ast.CallExpr{}, met: map[types.Object]bool{}}
	for of, decl := range f.declared {
		for at := range of.Signature().Params().Len() {
			if object := f.param(decl, at); object != nil {
				t.parameters[object] = parameter{of, at}
			}
		}
	}
	for _, file := range f.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if to := callee(f.info, call); to != nil {
					t.calls[to.Origin()] = append(t.calls[to.Origin()], call)
				}
			}
			return true
		})
	}
	return t
}

// passed returns the arguments that callers pass for the parameter object. It returns nil for a
// parameter that was asked for before, which ends recursion.
func (t *through) passed(object types.Object) (given []ast.Expr) {
	p, ok := t.parameters[object]
	if !ok || t.met[object] {
		return nil
	}
	t.met[object] = true
	for _, call := range t.calls[p.of] {
		if p.at < len(call.Args) {
			given = append(given, call.Args[p.at])
		}
	}
	return given
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
	set, ok := f.only(e)
	if !ok {
		return nil
	}
	literal, _ := ast.Unparen(set).(*ast.FuncLit)
	return literal
}

// calledAs adds the functions that call, in body b, calls through a variable: a literal assigned
// before the body, or the arguments that callers pass for a parameter.
func (f *finder) calledAs(b *body, call *ast.CallExpr) {
	if literal := f.closure(call.Fun); literal != nil && !within(literal, b.block) {
		f.add(literal, f.txOf(b, call, literal), b.by, b.shares, true)
	}
	variable := f.variable(call.Fun)
	if of := f.declared[f.through.parameters[variable].of]; of == nil || of == b.node || !within(b.node, of) {
		// Skip a helper of the package that calls its argument, such as a retry loop. It is called
		// elsewhere too.
		return
	}
	for _, e := range f.through.passed(variable) {
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
