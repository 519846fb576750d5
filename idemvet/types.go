package idemvet

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// These are the import paths of idem and pgx, by which the rules recognize functions and types.
const (
	library = "github.com/idem-go/idem"
	pgx     = "github.com/jackc/pgx/v5"
)

// ofIdem reports whether pkg is a package of idem that programs import. It returns false for other
// packages of the repository, such as the examples. Those are programs themselves, so the rules
// apply to them.
func ofIdem(pkg *types.Package) bool {
	if pkg == nil {
		return false
	}
	rest, ok := strings.CutPrefix(pkg.Path(), library)
	if !ok || rest != "" && rest[0] != '/' || strings.Contains(rest, "/internal") {
		return false
	}
	return !hasPrefixOf(rest, []string{"/lab", "/example", "/cmd", "/tools", "/idemvet"})
}

func hasPrefixOf(text string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// callee returns the function or method that call names, or nil. The method may belong to an
// interface.
func callee(info *types.Info, call *ast.CallExpr) *types.Func {
	f, _ := typeutil.Callee(info, call).(*types.Func)
	return f
}

// isFunc reports whether f is a function or method with one of names in the package with the import
// path path.
func isFunc(f *types.Func, path string, names ...string) bool {
	return f != nil && f.Pkg() != nil && f.Pkg().Path() == path && slices.Contains(names, f.Name())
}

// named returns the package path and the name of t. For a pointer type, it returns those of the
// type that t points to. Both are empty for an unnamed type.
func named(t types.Type) (path, name string) {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	n, ok := types.Unalias(t).(*types.Named)
	if !ok || n.Obj().Pkg() == nil {
		return "", ""
	}
	return n.Obj().Pkg().Path(), n.Obj().Name()
}

// isNamed reports whether t, or the type that t points to, is the type called name in the package
// path.
func isNamed(t types.Type, path, name string) bool {
	p, n := named(t)
	return p == path && n == name
}

// isTx reports whether t is a transaction of pgx or database/sql.
func isTx(t types.Type) bool {
	return isNamed(t, pgx, "Tx") || isNamed(t, "database/sql", "Tx")
}

// hasOwnConnection reports whether t is a pool, a connection, or a type such as sqlx.DB that wraps
// a pool. Statements through a value of such a type usually run outside the transaction of idem.
func hasOwnConnection(t types.Type) bool {
	switch path, name := named(t); path {
	case pgx, pgx + "/pgxpool":
		return name == "Pool" || name == "Conn"
	case "database/sql", "github.com/uptrace/bun":
		return name == "DB" || name == "Conn"
	case "github.com/jmoiron/sqlx":
		return name == "DB"
	}
	return false
}

// takesTx reports whether a value of type t can be bound to a transaction. Queries of sqlc and
// *gorm.DB are such types. A value that is not bound uses a connection of its own.
func takesTx(t types.Type) bool {
	if isNamed(t, "gorm.io/gorm", "DB") {
		return true
	}
	if basic, ok := t.Underlying().(*types.Basic); ok && basic.Kind() == types.Invalid {
		return false
	}
	f, _, _ := types.LookupFieldOrMethod(t, true, nil, "WithTx")
	method, ok := f.(*types.Func)
	if !ok {
		return false
	}
	params := method.Signature().Params()
	return params.Len() == 1 && isTx(params.At(0).Type())
}

// root returns the variable at the beginning of an expression: s for s.queries.db(). The rules
// treat a field of a variable, or the result of its method, as a part of the variable.
func root(info *types.Info, e ast.Expr) types.Object {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.Ident:
			return info.Uses[x]
		case *ast.SelectorExpr:
			if _, ok := info.Selections[x]; !ok {
				return info.Uses[x.Sel] // a qualified identifier
			}
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.UnaryExpr:
			e = x.X
		case *ast.CallExpr:
			e = x.Fun
		default:
			return nil
		}
	}
}

// contains reports whether root or a node inside root has the type N and is(node) returns true for
// it.
func contains[N ast.Node](root ast.Node, is func(N) bool) (found bool) {
	ast.Inspect(root, func(node ast.Node) bool {
		n, ok := node.(N)
		found = found || ok && is(n)
		return !found
	})
	return found
}

// mentions reports whether e contains a use of object.
func mentions(info *types.Info, e ast.Node, object types.Object) bool {
	return object != nil && contains(e, func(id *ast.Ident) bool { return info.Uses[id] == object })
}

// isWithin reports whether object is declared inside node.
func isWithin(object types.Object, node ast.Node) bool {
	return object != nil && object.Pos() >= node.Pos() && object.Pos() < node.End()
}

// within reports whether n is inside outer, or is outer.
func within(n, outer ast.Node) bool { return n.Pos() >= outer.Pos() && n.End() <= outer.End() }
