package idemvet

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// Replay reports functions of operations that may take other steps when they run again.
var Replay = analyzer("idemreplay", `find functions of operations whose steps depend on the time, on chance or on the order of a map

The function of an operation is called again after a crash, and has to take the same steps in the same order. What may differ is decided in a step, whose
value is recorded.`,
	func(pass *analysis.Pass) {
		r := &replays{pass: pass, functions: functionsOf(pass), met: map[ast.Node]bool{}}
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

// replays is one run of Replay over a package.
type replays struct {
	*functions
	pass *analysis.Pass
	met  map[ast.Node]bool
	told *told // of the function that look examines
}

// look examines a function that takes steps, except for the functions of its steps. A function runs
// again on every replay, so it may not depend on the time, on random values or on the order of a
// map.
func (r *replays) look(node ast.Node) {
	block := blockOf(node)
	if r.met[node] || block == nil {
		return
	}
	r.met[node] = true
	outer := r.told
	defer func() { r.told = outer }()
	r.told = r.toldIn(block)
	r.variables(block)
	ast.Inspect(block, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			return r.call(n)
		case *ast.GoStmt:
			if r.takesSteps(n.Call) {
				r.pass.ReportRangef(n, "a goroutine takes steps of the operation: their order is not the same when it is run again. Calls that are under way at once are for operation.Go")
			}
		case *ast.RangeStmt:
			if r.isUnordered(n.X) && r.takesSteps(n.Body) {
				r.pass.ReportRangef(n.X, "the order of a map decides the order of steps, and is another one when the operation is run again: sort the keys")
			}
		}
		return true
	})
}

// isUnordered reports whether ranging over e has the random order of a map.
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
// reports whether look should also examine the arguments.
func (r *replays) call(call *ast.CallExpr) (deeper bool) {
	to := callee(r.info, call)
	if to == nil || to.Pkg() == nil {
		return true
	}
	if r.isStep(call) || isFunc(to, library+"/operation", "UndoTx", "UndoCall", "Asked") { // the functions among the arguments run in steps
		for _, arg := range call.Args {
			if _, ok := ast.Unparen(arg).(*ast.FuncLit); !ok {
				r.within(arg)
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
	r.differs(call)
	return true
}

// within examines an argument of a step other than its function. The argument is evaluated on every
// replay.
func (r *replays) within(e ast.Expr) {
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			r.differs(call)
		}
		_, isLiteral := n.(*ast.FuncLit)
		return !isLiteral
	})
}

// differs reports a call that returns another value on a replay, unless the value is only logged.
func (r *replays) differs(call *ast.CallExpr) {
	to := callee(r.info, call)
	if r.told.has(call, 0) {
		return
	}
	if chance, _ := isChance(r.info, call); chance || isFunc(to, "time", "Now", "Since", "Until") {
		r.pass.ReportRangef(call, "%s.%s is another value when the operation is run again: take it in a step, such as operation.Tx, which records it", to.Pkg().Name(), to.Name())
	}
}

// isStep reports whether call is a function of package operation that is given an Op or a Calls.
func (r *replays) isStep(call *ast.CallExpr) bool {
	to := callee(r.info, call)
	return to != nil && to.Pkg() != nil && to.Pkg().Path() == library+"/operation" && r.passesOp(call)
}

// passesOp reports whether an argument of call is an Op or a Calls.
func (r *replays) passesOp(call *ast.CallExpr) bool {
	for _, arg := range call.Args {
		if t := r.info.TypeOf(arg); t != nil && (isNamed(t, library+"/operation", "Op") || isNamed(t, library+"/operation", "Calls")) {
			return true
		}
	}
	return false
}

// takesSteps reports whether n contains a call that is given the Op.
func (r *replays) takesSteps(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && r.passesOp(call) {
			found = true
		}
		return !found
	})
	return found
}
