package idemvet

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// told are the places of a function of an operation whose values decide no step and no answer: what is logged, and what a defer does that sets nothing.
type told struct {
	*replays
	block  *ast.BlockStmt
	places []ast.Node
}

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

// logs reports whether a function is one of a logger. A trace or a line of fmt.Print is a log too.
func logs(f *types.Func) bool {
	if f == nil || f.Pkg() == nil {
		return false
	}
	path := f.Pkg().Path()
	return path == "log" || path == "log/slog" || path == "fmt" && strings.HasPrefix(f.Name(), "Print")
}

// sets reports whether a defer sets what is declared outside of it, such as a result.
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
				outer(n.X) // a function that has the address may set it
			}
		case *ast.SendStmt:
			found = true
		}
		return !found
	})
	return found
}

// has reports whether the value of a node goes nowhere else, not by the variable that is set to it either.
func (t *told) has(n ast.Node, deep int) bool {
	for _, place := range t.places {
		if within(n, place) {
			return true
		}
	}
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

// setBy returns the variables of the function that are set once, to what a node is a part of: those of the innermost such expression.
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
