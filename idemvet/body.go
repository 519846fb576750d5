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

// body is a function that runs in a transaction of idem, either because idem calls it or because
// another body calls it. A function with several callers is only one body, because one diagnostic
// for a fault in the function is enough.
type body struct {
	*functions
	node     ast.Node // *ast.FuncLit or *ast.FuncDecl
	block    *ast.BlockStmt
	tx       types.Object           // the parameter or variable for the transaction; nil if it has no name
	by       string                 // the function of idem that runs the body, for example "idem.Do"
	shares   bool                   // the body runs in a transaction of idem's caller, as with DoTx
	accepted map[*ast.CallExpr]bool // calls that idemoutside accepts: their method chain receives the transaction
	// helper says that the function is called by another function in the transaction, and not by
	// idem. The rules then do not know whether its other parameters are bound to the transaction.
	helper bool
}

// bodies is the analyzer that finds all functions of a package that run in a transaction of idem.
// All rules share its result, so that a package is searched only once.
var bodies = &analysis.Analyzer{
	Name: "idembodies", Doc: "find the functions that run in a transaction of idem",
	Requires: []*analysis.Analyzer{inspect.Analyzer}, ResultType: reflect.TypeFor[[]*body](),
	Run: func(pass *analysis.Pass) (any, error) {
		f := &finder{functions: functionsOf(pass), seen: map[ast.Node]bool{}}
		if ofIdem(pass.Pkg) {
			return f.found, nil // the rules do not apply to idem's own packages
		}
		f.arguments = argumentsOf(f.functions)
		in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
		in.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) { f.call(n.(*ast.CallExpr)) })
		for i := 0; i < len(f.found); i++ { // helpersOf appends to f.found while the loop runs
			f.helpersOf(f.found[i])
		}
		return f.found, nil
	},
}

// finder collects the functions of a package that run in a transaction of idem.
type finder struct {
	*functions
	seen      map[ast.Node]bool
	found     []*body
	arguments *arguments
}

// call adds the functions that call passes to a function of idem. It also adds the function around
// a call such as idemhttp.Tx(ctx), which returns the transaction of the request. A handler behind
// the middleware of idemhttp gets its transaction in this way, without being passed to idem.
//
// DoTx and HandleTx run the function in their caller's transaction. The function may then also
// write through the caller's own Tx variable, and the rule idemoutside accepts such writes in
// bodies whose field shares is true.
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

// addArgument adds the functions that e may refer to, if e has a function type with a transaction
// among its parameters. If e is itself a parameter of a function in the package, addArgument also
// adds the arguments that the callers of that function pass.
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

// add adds the function node to the bodies, unless it was added before. The other arguments become
// the fields of the body with the same names.
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

// helpersOf adds the functions in the package that the function b calls.
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

// walk calls visit for each syntax node of the code that runs during a call of the function.
//
// It enters a function literal only if the body calls the literal or passes it to a call. It skips
// literals that are only stored for later. A literal that is assigned to a variable and called
// later is visited after the block that contains it. It is visited only once, so that no rule
// reports the same call twice.
func (b *body) walk(info *types.Info, visit func(ast.Node)) {
	runs, blocks := map[*ast.FuncLit]bool{}, []*ast.BlockStmt{b.block}
	for i := 0; i < len(blocks); i++ { // the loop appends to blocks while it runs
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

// literalsOf returns the function literals that call runs or may run: the called literal itself, as
// in func() {…}(), and the literals among the arguments. The arguments of builtins do not count,
// because builtins do not call them.
func literalsOf(info *types.Info, call *ast.CallExpr) (literals []*ast.FuncLit) {
	exprs := []ast.Expr{call.Fun}
	if tv, ok := info.Types[call.Fun]; !ok || !tv.IsBuiltin() { // append, for example, only stores its arguments
		exprs = append(exprs, call.Args...)
	}
	for _, e := range exprs {
		if literal, ok := ast.Unparen(e).(*ast.FuncLit); ok {
			literals = append(literals, literal)
		}
	}
	return literals
}
