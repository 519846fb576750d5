package idemvet

import (
	"go/ast"
	"go/types"
	"reflect"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// body is a function that runs in a transaction of idem, or one that such a function calls.
type body struct {
	*functions
	node   ast.Node // *ast.FuncLit or *ast.FuncDecl
	block  *ast.BlockStmt
	tx     types.Object           // its transaction; nil if it has no name
	by     string                 // what it was given to: "idem.Do"
	shares bool                   // the transaction of its caller is the same one
	fine   map[*ast.CallExpr]bool // calls that begin a chain which is given the transaction
	helper bool                   // it is called by such a function: what its parameters are is its callers' knowledge
}

// bodies finds the functions that run in a transaction of idem.
var bodies = &analysis.Analyzer{
	Name: "idembodies", Doc: "find the functions that run in a transaction of idem",
	Requires: []*analysis.Analyzer{inspect.Analyzer}, ResultType: reflect.TypeFor[[]*body](),
	Run: func(pass *analysis.Pass) (any, error) {
		f := &finder{functions: functionsOf(pass), met: map[ast.Node]bool{}}
		if ofIdem(pass.Pkg) {
			return f.found, nil // it has rules of its own
		}
		f.through = throughOf(f.functions)
		in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
		in.Preorder([]ast.Node{(*ast.CallExpr)(nil), (*ast.CompositeLit)(nil)}, f.visit)
		for i := 0; i < len(f.found); i++ { // it grows
			f.helpersOf(f.found[i])
		}
		return f.found, nil
	},
}

type finder struct {
	*functions
	met     map[ast.Node]bool
	found   []*body
	through *through
}

func (f *finder) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.CallExpr:
		f.call(n)
	case *ast.CompositeLit:
		path, name := named(f.info.TypeOf(n))
		for _, element := range n.Elts {
			if field, ok := element.(*ast.KeyValueExpr); ok && ofIdem(types.NewPackage(path, "")) {
				f.given(field.Value, name, false)
			}
		}
	}
}

// call finds functions that are given to idem, and those that ask for the transaction that they run in.
func (f *finder) call(call *ast.CallExpr) {
	to := callee(f.info, call)
	if set, ok := f.only(call.Fun); ok && to == nil {
		to, _ = f.info.Uses[nameOf(set)].(*types.Func) // do := idem.Do
	}
	if to == nil || !ofIdem(to.Pkg()) {
		return
	}
	if to.Name() == "Tx" && to.Signature().Results().Len() == 1 && isTx(to.Signature().Results().At(0).Type()) {
		if outer := f.around(call); outer != nil {
			f.add(outer, f.assignedTo(call), to.Pkg().Name()+".Tx", false, false)
		}
		return
	}
	shares := to.Name() == "DoTx" || to.Name() == "HandleTx"
	for _, arg := range call.Args {
		f.given(arg, to.Pkg().Name()+"."+to.Name(), shares)
	}
}

// given finds the function that is given to idem, if it takes a transaction.
func (f *finder) given(e ast.Expr, by string, shares bool) {
	t := f.info.TypeOf(e)
	if t == nil {
		return
	}
	signature, ok := t.Underlying().(*types.Signature)
	if !ok {
		return
	}
	at := -1
	for i := range signature.Params().Len() {
		if isTx(signature.Params().At(i).Type()) {
			at = i
		}
	}
	if at < 0 {
		return
	}
	for _, node := range f.resolve(e) {
		f.add(node, f.param(node, at), by, shares, false)
	}
	for _, passed := range f.through.passed(f.variable(e)) {
		f.given(passed, by, shares)
	}
}

func (f *finder) add(node ast.Node, tx types.Object, by string, shares, helper bool) {
	if f.met[node] {
		return
	}
	f.met[node] = true
	if block := blockOf(node); block != nil {
		f.found = append(f.found, &body{functions: f.functions, node: node, block: block, fine: map[*ast.CallExpr]bool{}, tx: tx, by: by, shares: shares, helper: helper})
	}
}

// helpersOf finds the functions of the package that a body calls.
func (f *finder) helpersOf(b *body) {
	b.walk(f.info, func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		if decl := f.declared[callee(f.info, call)]; decl != nil {
			f.add(decl, f.txOf(b, call, decl), b.by, b.shares, true)
		}
		f.calledAs(b, call)
	})
}

// walk visits what runs while the body does: not a function that is kept for later, nor one that is a step of an operation.
func (b *body) walk(info *types.Info, visit func(ast.Node)) {
	runs, blocks := map[*ast.FuncLit]bool{}, []*ast.BlockStmt{b.block}
	for i := 0; i < len(blocks); i++ { // it grows
		ast.Inspect(blocks[i], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				for _, literal := range literalsOf(info, n) {
					runs[literal] = true
				}
				if literal := b.closure(n.Fun); literal != nil && within(literal, b.block) && !runs[literal] {
					runs[literal] = true
					blocks = append(blocks, literal.Body)
				}
			case *ast.FuncLit:
				if !runs[n] || slices.Contains(blocks, n.Body) {
					return false
				}
			}
			if n != nil {
				visit(n)
			}
			return true
		})
	}
}

// literalsOf returns the function that is called where it is written, and those that a call is given.
func literalsOf(info *types.Info, call *ast.CallExpr) (literals []*ast.FuncLit) {
	exprs := []ast.Expr{call.Fun}
	if tv, ok := info.Types[call.Fun]; !ok || !tv.IsBuiltin() { // append keeps it
		exprs = append(exprs, call.Args...)
	}
	for _, e := range exprs {
		if literal, ok := ast.Unparen(e).(*ast.FuncLit); ok {
			literals = append(literals, literal)
		}
	}
	return literals
}
