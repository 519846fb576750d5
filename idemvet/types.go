package idemvet

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// The paths of what these rules are about.
const (
	library = "github.com/idem-go/idem"
	pgx     = "github.com/jackc/pgx/v5"
)

// ofIdem reports whether a package is one of idem's that programs import.
func ofIdem(pkg *types.Package) bool {
	if pkg == nil {
		return false
	}
	rest, ok := strings.CutPrefix(pkg.Path(), library)
	if !ok || rest != "" && rest[0] != '/' || strings.Contains(rest, "/internal") {
		return false
	}
	for _, own := range []string{"/lab", "/example", "/cmd", "/tools", "/idemvet"} {
		if strings.HasPrefix(rest, own) {
			return false
		}
	}
	return true
}

// callee returns the function or method that a call is of, also if it is one of an interface.
func callee(info *types.Info, call *ast.CallExpr) *types.Func {
	f, _ := typeutil.Callee(info, call).(*types.Func)
	return f
}

// isFunc reports whether f is a function or method of a package with one of these names.
func isFunc(f *types.Func, path string, names ...string) bool {
	if f == nil || f.Pkg() == nil || f.Pkg().Path() != path {
		return false
	}
	for _, name := range names {
		if f.Name() == name {
			return true
		}
	}
	return false
}

// named returns the path of the package and the name of a type, or of what it points to.
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

// isNamed reports whether a type, or what it points to, is the one of that name.
func isNamed(t types.Type, path, name string) bool {
	p, n := named(t)
	return p == path && n == name
}

// isTx reports whether a type is a transaction.
func isTx(t types.Type) bool {
	return isNamed(t, pgx, "Tx") || isNamed(t, "database/sql", "Tx")
}

// opensItsOwn reports whether a type is a pool, a connection, or what is made of one: what is done by it is in no transaction of idem.
func opensItsOwn(t types.Type) bool {
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

// takesTx reports whether a value can be given a transaction, as the Queries of sqlc can, and a *gorm.DB: without one it has a connection of its own.
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

// root returns the variable that an expression begins with: s of s.queries.db().
func root(info *types.Info, e ast.Expr) types.Object {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.Ident:
			return info.Uses[x]
		case *ast.SelectorExpr:
			if _, ok := info.Selections[x]; !ok {
				return info.Uses[x.Sel] // of a package
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

// mentions reports whether an expression has a variable in it.
func mentions(info *types.Info, e ast.Node, object types.Object) (found bool) {
	if object == nil {
		return false
	}
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && info.Uses[id] == object {
			found = true
		}
		return !found
	})
	return found
}

// isWithin reports whether an object is declared inside of a node.
func isWithin(object types.Object, node ast.Node) bool {
	return object != nil && object.Pos() >= node.Pos() && object.Pos() < node.End()
}

// within reports whether a node is a part of another.
func within(n, outer ast.Node) bool { return n.Pos() >= outer.Pos() && n.End() <= outer.End() }
