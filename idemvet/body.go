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

// body is a function that runs in a transaction of idem, or a function of the package that such a
// function calls. A function with several callers is one body: a fault in it is a fault under
// each of them, and one diagnostic is enough.
type body struct {
	*functions
	node     ast.Node // *ast.FuncLit or *ast.FuncDecl
	block    *ast.BlockStmt
	tx       types.Object           // the parameter or variable with the transaction; nil if it has no name
	by       string                 // the function of idem that calls it, for example "idem.Do"
	shares   bool                   // it runs in the caller's transaction, as under DoTx
	accepted map[*ast.CallExpr]bool // calls in a method chain that is given the transaction
	// helper: a body calls it. The origin of its parameters is then known to its callers only.
	helper bool
}

// bodies is the analyzer that finds all bodies of a package. The rules require its result, so that
// a package is searched once and not once for each rule.
var bodies = &analysis.Analyzer{
	Name: "idembodies", Doc: "find the functions that run in a transaction of idem",
	Requires: []*analysis.Analyzer{inspect.Analyzer}, ResultType: reflect.TypeFor[[]*body](),
	Run: func(pass *analysis.Pass) (any, error) {
		f := &finder{functions: functionsOf(pass), seen: map[ast.Node]bool{}}
		if ofIdem(pass.Pkg) {
			return f.found, nil // idem itself has other rules
		}
		f.arguments = argumentsOf(f.functions)
		in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
		in.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) { f.call(n.(*ast.CallExpr)) })
		for i := 0; i < len(f.found); i++ { // helpersOf appends to f.found
			f.helpersOf(f.found[i])
		}
		return f.found, nil
	},
}

// finder collects the bodies of a package.
type finder struct {
	*functions
	seen      map[ast.Node]bool
	found     []*body
	arguments *arguments
}

// call finds functions that are passed to a function of idem. It also finds functions that ask for
// the transaction of the request with a function Tx(ctx): they run in a transaction too. That is
// how a handler behind the middleware of idemhttp gets its transaction, without being passed to
// idem.
//
// DoTx and HandleTx use the transaction of the caller, in which the caller may write with another
// Tx. The body is marked, so that idemoutside accepts that.
func (f *finder) call(call *ast.CallExpr) {
	to := callee(f.info, call)
	if set, ok := f.soleValue(call.Fun); ok && to == nil {
		to, _ = f.info.Uses[nameOf(set)].(*types.Func) // do := idem.Do
	}
	if to == nil || !ofIdem(to.Pkg()) {
		return
	}

	if to.Name() == "Tx" && to.Signature().Results().Len() == 1 && isTx(to.Signature().Results().At(0).Type()) {
		if outer := f.enclosingFunc(call); outer != nil {
			f.add(outer, f.assignedTo(call), to.Pkg().Name()+".Tx", false, false)
		}
		return
	}
	shares := to.Name() == "DoTx" || to.Name() == "HandleTx"
	for _, arg := range call.Args {
		f.addArgument(arg, to.Pkg().Name()+"."+to.Name(), shares)
	}
}

// addArgument adds the functions that e may be, if its type takes a transaction. If e is a
// parameter of a function of the package, the arguments of that function's callers are added as
// well.
func (f *finder) addArgument(e ast.Expr, by string, shares bool) {
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
	for _, passed := range f.arguments.passed(f.variable(e)) {
		f.addArgument(passed, by, shares)
	}
}

// add adds a function once. The parameter helper is as in body.
func (f *finder) add(node ast.Node, tx types.Object, by string, shares, helper bool) {
	if f.seen[node] {
		return
	}
	f.seen[node] = true
	if block := blockOf(node); block != nil {
		f.found = append(f.found, &body{
			functions: f.functions, node: node, block: block, accepted: map[*ast.CallExpr]bool{}, tx: tx, by: by, shares: shares, helper: helper})
	}
}

// helpersOf adds the functions of the package that b calls.
func (f *finder) helpersOf(b *body) {
	b.walk(f.info, func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		if decl := f.declared[callee(f.info, call)]; decl != nil {
			f.add(decl, f.txOf(b, call, decl), b.by, b.shares, true)
		}
		f.addIndirect(b, call)
	})
}

// walk calls visit for each node that runs while the body runs.
//
// It enters a function literal only if the literal is called, or is passed to a call, inside the
// body. Literals that are stored for later, and the functions of steps of an operation, are
// skipped. A literal that is assigned to a variable and called later is visited after the block
// that contains it, and only once: a rule must not report the same call twice.
func (b *body) walk(info *types.Info, visit func(ast.Node)) {
	runs, blocks := map[*ast.FuncLit]bool{}, []*ast.BlockStmt{b.block}
	for i := 0; i < len(blocks); i++ { // the loop appends to blocks
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

// literalsOf returns the function literals that call runs: the literal that is called where it is
// written, and the literals among the arguments. Builtins do not call their arguments.
func literalsOf(info *types.Info, call *ast.CallExpr) (literals []*ast.FuncLit) {
	exprs := []ast.Expr{call.Fun}
	if tv, ok := info.Types[call.Fun]; !ok || !tv.IsBuiltin() { // append only stores them
		exprs = append(exprs, call.Args...)
	}
	for _, e := range exprs {
		if literal, ok := ast.Unparen(e).(*ast.FuncLit); ok {
			literals = append(literals, literal)
		}
	}
	return literals
}
