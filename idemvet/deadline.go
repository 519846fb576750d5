package idemvet

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Deadline reports calls whose context has no deadline.
var Deadline = analyzer("idemdeadline", `find calls of idem whose context never ends

A call whose answer to COMMIT is lost asks for the outcome of it for as long as its context lasts, and a duplicate waits for as long. With a context that has no
deadline that may be for ever: give one, such as that of the request. A statement of a function with a context of its own goes on when the caller has left.`,
	func(pass *analysis.Pass) {
		f := functionsOf(pass)
		in := inspectorOf(pass)
		in.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) {
			call := n.(*ast.CallExpr)
			to := callee(pass.TypesInfo, call)
			if to == nil || to.Pkg() == nil || len(call.Args) == 0 || !takesContext(to) {
				return
			}
			from := f.endless(call.Args[0], 0)
			switch {
			case from == nil:
			case ofIdem(to.Pkg()) && takesKey(to):
				if from.Name() == "NotifyContext" && pass.Pkg.Name() == "main" && !f.hasCaller(call, hasContext) {
					return // a command may run until it is interrupted
				}
				pass.ReportRangef(call.Args[0], "this context of %s.%s never ends, and so %s.%s may not: pass the caller's context, with a deadline",
					from.Pkg().Name(), from.Name(), to.Pkg().Name(), to.Name())
			case from.Name() == "NotifyContext" && to.Pkg().Path() != "context" && f.hasCaller(call, isServed):
				pass.ReportRangef(call.Args[0], "this context ends by a signal and not with the request, so %s goes on when the caller has left: pass the caller's context", to.Name())
			}
		})
		for _, b := range bodiesOf(pass) {
			b.walk(pass.TypesInfo, func(n ast.Node) {
				if call, ok := n.(*ast.CallExpr); ok && b.leavesCaller(call) {
					pass.ReportRangef(call.Args[0], "this context is not the caller's, so the statement goes on when the caller has left: pass the caller's context")
				}
			})
		}
	})

// takesKey reports whether f is a function that claims a key.
func takesKey(f *types.Func) bool { return keyParam(f) >= 0 && strings.HasPrefix(f.Name(), "Do") }

// endless returns the function that made the context e, if that context has no deadline:
// context.Background, TODO or WithoutCancel, or signal.NotifyContext of one of those. It returns
// nil for any other context.
func (f *functions) endless(e ast.Expr, deep int) *types.Func {
	if deep > 8 {
		return nil
	}
	if set, ok := f.only(e); ok {
		return f.endless(set, deep+1)
	}
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return nil
	}
	switch to := callee(f.info, call); {
	case isFunc(to, "context", "Background", "TODO", "WithoutCancel"):
		return to
	case isFunc(to, "context", "WithValue", "WithCancel", "WithCancelCause"):
		return f.endless(call.Args[0], deep+1)
	case isFunc(to, "os/signal", "NotifyContext") && f.endless(call.Args[0], deep+1) != nil:
		return to
	}
	return nil
}

// leavesCaller reports whether call uses the transaction with a new context although the function
// has a context from its caller. Rollback is exempt, because a rollback must happen even if that
// context has ended.
func (b *body) leavesCaller(call *ast.CallExpr) bool {
	to := b.calleeOf(call)
	if b.tx == nil || to == nil || len(call.Args) == 0 || !takesContext(to) || to.Name() == "Rollback" {
		return false
	}
	from := b.endless(call.Args[0], 0)
	return from != nil && from.Name() != "WithoutCancel" && b.isUsedBy(call) && b.hasCaller(call, hasContext) &&
		!(from.Name() == "NotifyContext" && b.hasCaller(call, isServed)) // this case is reported for any call
}

func takesContext(f *types.Func) bool {
	params := f.Signature().Params()
	return params.Len() > 0 && isContext(params.At(0).Type())
}

func isContext(t types.Type) bool { return isNamed(t, "context", "Context") }

// hasCaller reports whether a function around n has a named parameter whose type satisfies is.
func (f *functions) hasCaller(n ast.Node, is func(types.Type) bool) bool {
	for _, fn := range f.functionsAround(n) {
		for _, field := range typeOf(fn).Params.List {
			for _, name := range field.Names {
				if name.Name != "_" && is(f.info.TypeOf(field.Type)) {
					return true
				}
			}
		}
	}
	return false
}

// isServed reports whether t is the type of a request that a program serves, or of an operation
// that it runs.
func isServed(t types.Type) bool {
	return isNamed(t, "net/http", "Request") || isNamed(t, library+"/operation", "Op")
}

// hasContext reports whether t is a context, or has a method Context that returns one.
func hasContext(t types.Type) bool {
	if isContext(t) {
		return true
	}
	method, _, _ := types.LookupFieldOrMethod(t, true, nil, "Context")
	get, ok := method.(*types.Func)
	return ok && get.Signature().Results().Len() == 1 && isContext(get.Signature().Results().At(0).Type())
}
