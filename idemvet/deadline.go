package idemvet

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Deadline is the analyzer that reports calls of idem whose context never ends.
var Deadline = analyzer("idemdeadline", `find calls of idem whose context never ends

A statement waits for a lock, or for a server that does not answer, as long as its context lasts. With a context that has no deadline it may wait
forever, and hold its key and its connection. Pass the context of the request, with a deadline. A statement with a context of its own continues
after the caller has left.`,
	func(pass *analysis.Pass) {
		f := functionsOf(pass)
		in := inspectorOf(pass)
		in.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) {
			call := n.(*ast.CallExpr)
			to := callee(pass.TypesInfo, call)
			if to == nil || to.Pkg() == nil || len(call.Args) == 0 || !takesContext(to) {
				return
			}
			// A context that never ends is wrong for every call that claims a key. A context that ends only
			// with the process is wrong for every call in a handler.
			from := f.endless(call.Args[0], 0)
			switch {
			case from == nil:
			case ofIdem(to.Pkg()) && takesKey(to):
				if from.Name() == "NotifyContext" && pass.Pkg.Name() == "main" && !f.hasParam(call, hasContext) {
					return // a command-line program may wait until the user interrupts it
				}
				pass.ReportRangef(call.Args[0], "this context of %s.%s never ends, so %s.%s may wait forever: pass the caller's context, with a deadline",
					from.Pkg().Name(), from.Name(), to.Pkg().Name(), to.Name())
			case from.Name() == "NotifyContext" && to.Pkg().Path() != "context" && f.hasParam(call, isRequestOrOp):
				pass.ReportRangef(call.Args[0], "this context ends with a signal and not with the request, so %s continues after the caller has left: "+
					"pass the caller's context", to.Name())
			}
		})
		for _, b := range bodiesOf(pass) {
			b.walk(pass.TypesInfo, func(n ast.Node) {
				if call, ok := n.(*ast.CallExpr); ok && b.ignoresCallersContext(call) {
					pass.ReportRangef(call.Args[0],
						"this context is not the caller's, so the statement continues after the caller has left: pass the caller's context")
				}
			})
		}
	})

// takesKey reports whether f is a function that claims an idempotency key: its name begins with Do
// and it has a parameter called key.
func takesKey(f *types.Func) bool { return keyParam(f) >= 0 && strings.HasPrefix(f.Name(), "Do") }

// endless returns the function that created the context e, if the context has no deadline and does
// not end with a request: context.Background, TODO or WithoutCancel, or signal.NotifyContext with
// such a context as the parent. It returns nil for any other context.
func (f *functions) endless(e ast.Expr, deep int) *types.Func {
	if deep > 8 {
		return nil
	}
	if set, ok := f.soleValue(e); ok {
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

// ignoresCallersContext reports whether call uses the transaction with a new context, although a
// function around the call receives a context from its caller. Rollback is exempt, because a
// rollback must happen even after the caller's context has ended. WithoutCancel is exempt, because
// a program that uses it lets the statement continue on purpose.
func (b *body) ignoresCallersContext(call *ast.CallExpr) bool {
	to := b.calleeOf(call)
	if b.tx == nil || to == nil || len(call.Args) == 0 || !takesContext(to) || to.Name() == "Rollback" {
		return false
	}
	from := b.endless(call.Args[0], 0)
	return from != nil && from.Name() != "WithoutCancel" && b.isUsedBy(call) && b.hasParam(call, hasContext) &&
		!(from.Name() == "NotifyContext" && b.hasParam(call, isRequestOrOp)) // the check of all calls already reports such a context
}

func takesContext(f *types.Func) bool {
	params := f.Signature().Params()
	return params.Len() > 0 && isContext(params.At(0).Type())
}

func isContext(t types.Type) bool { return isNamed(t, "context", "Context") }

// hasParam reports whether a function around n has a named parameter of a type t for which is(t)
// returns true.
func (f *functions) hasParam(n ast.Node, is func(types.Type) bool) bool {
	for _, fn := range f.enclosingFuncs(n) {
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

// isRequestOrOp reports whether t is http.Request or operation.Op. A parameter of such a type shows
// that the function serves a request or runs an operation.
func isRequestOrOp(t types.Type) bool {
	return isNamed(t, "net/http", "Request") || isNamed(t, library+"/operation", "Op")
}

// hasContext reports whether t is context.Context, or has a method Context that returns a context.
func hasContext(t types.Type) bool {
	if isContext(t) {
		return true
	}
	method, _, _ := types.LookupFieldOrMethod(t, true, nil, "Context")
	get, ok := method.(*types.Func)
	return ok && get.Signature().Results().Len() == 1 && isContext(get.Signature().Results().At(0).Type())
}
