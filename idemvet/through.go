package idemvet

import (
	"go/ast"
	"go/types"
)

// parameter is one of a function of the package: what its callers give it is known.
type parameter struct {
	of *types.Func
	at int
}

// through are the functions of a package that pass on functions that they are given: a service that has a scope of its own has one around idem.Do.
type through struct {
	parameters map[types.Object]parameter
	calls      map[*types.Func][]*ast.CallExpr
	met        map[types.Object]bool
}

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

// passed returns what callers give to a parameter. Each parameter is asked for once.
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

// variable returns the variable that an expression is, or nil.
func (f *functions) variable(e ast.Expr) types.Object {
	if id, ok := ast.Unparen(e).(*ast.Ident); ok {
		if v, ok := f.info.Uses[id].(*types.Var); ok {
			return v
		}
	}
	return nil
}

// closure returns the function that a variable is set to, if that is in one place.
func (f *functions) closure(e ast.Expr) *ast.FuncLit {
	set, ok := f.only(e)
	if !ok {
		return nil
	}
	literal, _ := ast.Unparen(set).(*ast.FuncLit)
	return literal
}

// calledAs finds the functions that are called by a variable: one that is set in front of the body, or those that callers have given.
func (f *finder) calledAs(b *body, call *ast.CallExpr) {
	if literal := f.closure(call.Fun); literal != nil && !within(literal, b.block) {
		f.add(literal, f.txOf(b, call, literal), b.by, b.shares, true)
	}
	variable := f.variable(call.Fun)
	if of := f.declared[f.through.parameters[variable].of]; of == nil || of == b.node || !within(b.node, of) {
		return // a helper that calls what it is given, such as one that tries again, is called elsewhere too
	}
	for _, e := range f.through.passed(variable) {
		for _, node := range f.resolve(e) {
			f.add(node, f.txOf(b, call, node), b.by, b.shares, true)
		}
	}
}

// txOf returns the parameter of a function that is called with the transaction of a body, or with what holds it. A savepoint is the
// caller's own, which the function may end.
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
