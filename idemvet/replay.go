package idemvet

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// Replay is the analyzer that reports functions of operations that may take other steps when they
// run again.
var Replay = analyzer("idemreplay", `find functions of operations whose steps depend on the time, on random values or on the order of a map

The function of an operation runs again after a crash, and must take the same steps in the same order. Get a value that may differ in a step, which
records it.`,
	func(pass *analysis.Pass) {
		r := &replays{pass: pass, functions: functionsOf(pass), seen: map[ast.Node]bool{}}
		in := inspectorOf(pass)
		in.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) {
			call := n.(*ast.CallExpr)
			if to := callee(pass.TypesInfo, call); isFunc(to, library+"/operation", "Define") && len(call.Args) > 1 {
				for _, node := range r.resolve(call.Args[1]) {
					r.look(node)
				}
			}
		})
	})

// replays is one run of the analyzer Replay over a package.
type replays struct {
	*functions
	pass  *analysis.Pass
	seen  map[ast.Node]bool
	inert *inert // the inert places of the function that look examines
}

// look examines a function that takes steps of an operation, but not the functions that run inside
// the steps. The examined function runs again on every replay, so its steps must not depend on the
// time, on random values or on the order of a map. look also examines the functions in the package
// to which the function passes its Op.
func (r *replays) look(node ast.Node) {
	block := blockOf(node)
	if r.seen[node] || block == nil {
		return
	}
	r.seen[node] = true
	outer := r.inert
	defer func() { r.inert = outer }()
	r.inert = r.inertIn(block)
	r.checkVariables(block)
	ast.Inspect(block, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			return r.call(n)
		case *ast.GoStmt:
			if r.takesSteps(n.Call) {
				r.pass.ReportRangef(n, "a goroutine takes steps of the operation, so their order differs between runs: use operation.Go for concurrent calls")
			}
		case *ast.RangeStmt:
			if r.isUnordered(n.X) && r.takesSteps(n.Body) {
				r.pass.ReportRangef(n.X, "the order of a map decides the order of steps and differs between runs: sort the keys")
			}
		}
		return true
	})
}

// isUnordered reports whether a loop over e runs in the random order of a map. It returns false for
// slices.Sorted, and true for slices.Collect of unordered elements.
func (r *replays) isUnordered(e ast.Expr) bool {
	if _, isMap := r.info.TypeOf(e).Underlying().(*types.Map); isMap {
		return true
	}
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	to := callee(r.info, call)
	return isFunc(to, "maps", "Keys", "Values", "All") || isFunc(to, "slices", "Collect") && r.isUnordered(call.Args[0])
}

// call examines a call in a function that takes steps, and follows calls that pass on the Op. It
// returns true if look should also examine the arguments.
//
// Function literals among the arguments of a step run inside the step. They may use the time and
// random values, because a replay uses the recorded value and does not call them.
func (r *replays) call(call *ast.CallExpr) (deeper bool) {
	to := callee(r.info, call)
	if to == nil || to.Pkg() == nil {
		return true
	}
	if r.isStep(call) || isFunc(to, library+"/operation", "UndoTx", "UndoCall", "Asked") {
		for _, arg := range call.Args {
			if _, ok := ast.Unparen(arg).(*ast.FuncLit); !ok {
				r.argument(arg)
			}
		}
		return false
	}
	if logs(to) {
		return false
	}
	if decl := r.declared[to]; decl != nil && r.passesOp(call) {
		r.look(decl)
	}
	r.checkRepeatable(call)
	return true
}

// argument examines an argument of a step that is not a function literal. Such an argument is
// evaluated again on every replay.
func (r *replays) argument(e ast.Expr) {
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			r.checkRepeatable(call)
		}
		_, isLiteral := n.(*ast.FuncLit)
		return !isLiteral
	})
}

// checkRepeatable reports a call that returns another value when the operation runs again, unless
// the value is only logged.
func (r *replays) checkRepeatable(call *ast.CallExpr) {
	to := callee(r.info, call)
	if r.inert.absorbs(call, 0) {
		return
	}
	if random, _ := isRandom(r.info, call); random || isFunc(to, "time", "Now", "Since", "Until") {
		r.pass.ReportRangef(call,
			"%s.%s returns another value when the operation runs again: call it in a step, such as operation.Tx, which records the value",
			to.Pkg().Name(), to.Name())
	}
}

// isStep reports whether call is a call of package operation with an argument of type Op or Calls.
func (r *replays) isStep(call *ast.CallExpr) bool {
	to := callee(r.info, call)
	return to != nil && to.Pkg() != nil && to.Pkg().Path() == library+"/operation" && r.passesOp(call)
}

// passesOp reports whether an argument of call has the type operation.Op or operation.Calls.
func (r *replays) passesOp(call *ast.CallExpr) bool {
	return slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
		t := r.info.TypeOf(arg)
		return t != nil && (isNamed(t, library+"/operation", "Op") || isNamed(t, library+"/operation", "Calls"))
	})
}

// takesSteps reports whether n contains a call with an argument of type operation.Op or
// operation.Calls.
func (r *replays) takesSteps(n ast.Node) bool { return contains(n, r.passesOp) }
