package idemvet

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/ast/inspector"
)

// isStored reports whether a new key is stored between where it is made and the call that uses it: a retry finds it there. What stores takes a context and
// says if it has failed, as Exec of a pool does, and a method of the program that saves an intent.
func (k *keys) isStored(in *inspector.Inspector, key ast.Expr, made ast.Node) (found bool) {
	variable := root(k.info, key)
	if _, ok := variable.(*types.Var); !ok {
		return false
	}
	in.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) {
		call := n.(*ast.CallExpr)
		if found || call.Pos() < made.End() || call.End() > key.Pos() || !stores(callee(k.info, call)) {
			return
		}
		for _, arg := range call.Args[1:] {
			found = found || mentions(k.info, arg, variable)
		}
	})
	return found
}

func stores(f *types.Func) bool {
	if f == nil || f.Pkg() == nil || ofIdem(f.Pkg()) || f.Pkg().Path() == "net/http" {
		return false
	}
	params, results := f.Signature().Params(), f.Signature().Results()
	if params.Len() < 2 || !isNamed(params.At(0).Type(), "context", "Context") || results.Len() == 0 {
		return false
	}
	return returnsError(f) || isReader(results.At(0).Type())
}
