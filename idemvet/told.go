package idemvet

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// told holds the places in a function of an operation whose values affect neither steps nor
// results: arguments of log calls, and deferred code that assigns to no outer variable.
type told struct {
	*replays
	block  *ast.BlockStmt
	places []ast.Node
}

// toldIn collects these places in block.
func (r *replays) toldIn(block *ast.BlockStmt) *told {
	t := &told{replays: r, block: block}
	ast.Inspect(block, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if logs(callee(r.info, n)) {
				t.places = append(t.places, n)
			}
		case *ast.DeferStmt:
			if !r.takesSteps(n) && !t.sets(n) {
				t.places = append(t.places, n)
			}
		}
		return true
	})
	return t
}

// logs reports whether f writes a log. Functions fmt.Print… count as logging.
func logs(f *types.Func) bool {
	if f == nil || f.Pkg() == nil {
		return false
	}
	path := f.Pkg().Path()
	return path == "log" || path == "log/slog" || path == "fmt" && strings.HasPrefix(f.Name(), "Print")
}

// sets reports whether n, a defer statement, can change state outside of itself: it assigns to a
// variable that is declared outside, takes its address, or sends on a channel.
func (t *told) sets(n ast.Node) (found bool) {
	outer := func(e ast.Expr) {
		if object := root(t.info, e); object != nil && !isWithin(object, n) {
			found = true
		}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				outer(to)
			}
		case *ast.IncDecStmt:
			outer(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				outer(n.X) // a function with the address may assign to it
			}
		case *ast.SendStmt:
			found = true
		}
		return !found
	})
	return found
}

// has reports whether the value of n is only used in places of t. The value may go through
// variables that are assigned once, at most eight deep.
func (t *told) has(n ast.Node, deep int) bool {
	for _, place := range t.places {
		if within(n, place) {
			return true
		}
	}
	// The value is assigned to variables. Follow each of their uses.
	variables := t.setBy(n)
	if len(variables) == 0 || deep > 8 {
		return false
	}
	for id, object := range t.info.Uses {
		if variables[object] && !t.has(id, deep+1) {
			return false
		}
	}
	return true
}

// setBy returns the variables that are assigned once, with an expression that contains n. If
// several such expressions contain n, the variables of the innermost one are returned.
func (t *told) setBy(n ast.Node) map[types.Object]bool {
	variables, from := map[types.Object]bool{}, token.NoPos
	for object, set := range t.set {
		if len(set) != 1 || !within(n, set[0]) || !isWithin(object, t.block) || t.takesSteps(set[0]) {
			continue
		}
		if set[0].Pos() > from {
			variables, from = map[types.Object]bool{}, set[0].Pos()
		}
		if set[0].Pos() == from {
			variables[object] = true
		}
	}
	return variables
}
