package idemvet

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Deadline finds calls whose context never ends.
var Deadline = analyzer("idemdeadline", `find calls of idem whose context never ends

A call whose answer to COMMIT is lost asks for the outcome of it for as long as its context lasts, and a duplicate waits for as long. With a context that has no
deadline that may be for ever: give one, such as that of the request.`,
	func(pass *analysis.Pass) {
		f := functionsOf(pass)
		in := inspectorOf(pass)
		in.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) {
			call := n.(*ast.CallExpr)
			to := callee(pass.TypesInfo, call)
			if to == nil || !ofIdem(to.Pkg()) || len(call.Args) == 0 || !takesKey(to) {
				return
			}
			if isNamed(to.Signature().Params().At(0).Type(), "context", "Context") && f.neverEnds(call.Args[0], 0) {
				pass.ReportRangef(call.Args[0], "this context never ends, and so %s.%s may not: give it a deadline", to.Pkg().Name(), to.Name())
			}
		})
	})

// takesKey reports whether a function is one that claims a key.
func takesKey(f *types.Func) bool { return keyParam(f) >= 0 && strings.HasPrefix(f.Name(), "Do") }

// neverEnds reports whether a context is the background's, without a deadline.
func (f *functions) neverEnds(e ast.Expr, deep int) bool {
	if set, ok := f.only(e); ok && deep < 8 {
		return f.neverEnds(set, deep+1)
	}
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	switch to := callee(f.info, call); {
	case isFunc(to, "context", "Background", "TODO"):
		return true
	case isFunc(to, "context", "WithValue", "WithCancel", "WithCancelCause", "WithoutCancel") && deep < 8:
		return to.Name() == "WithoutCancel" || f.neverEnds(call.Args[0], deep+1)
	}
	return false
}
