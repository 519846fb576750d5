package idemvet

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/ast/inspector"
)

// isStored reports whether the program stores a new key before it uses the key, so that a retry can
// find the stored key. The parameter made is the call that generates the key.
//
// A call with the key as an argument counts as storing if the called function takes a context and
// returns an error. Examples are Exec of a pool, or a method of the program that saves an intent.
// The rule cannot see which statement such a method executes, so it accepts all of them.
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

// stores reports whether f has the signature of a function that stores its arguments: it takes a
// context and another argument, and returns an error or rows. Functions of idem and of net/http do
// not count.
func stores(f *types.Func) bool {
	if f == nil || f.Pkg() == nil || ofIdem(f.Pkg()) || f.Pkg().Path() == "net/http" {
		return false
	}
	params, results := f.Signature().Params(), f.Signature().Results()
	if params.Len() < 2 || !isContext(params.At(0).Type()) || results.Len() == 0 {
		return false
	}
	return returnsError(f) || isLazyReader(results.At(0).Type())
}
