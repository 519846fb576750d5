package idemvet

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// inert holds the places in a function of an operation whose values affect neither steps nor
// results: arguments of log calls, and deferred code that changes no outer variable. A value that
// differs on a replay does no harm there. Programs commonly measure and log the time of a step.
type inert struct {
	*replays
	block  *ast.BlockStmt
	places []ast.Node
}

// inertIn collects these places in block.
func (r *replays) inertIn(block *ast.BlockStmt) *inert {
	t := &inert{replays: r, block: block}
	ast.Inspect(block, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if logs(callee(r.info, n)) {
				t.places = append(t.places, n)
			}
		case *ast.DeferStmt:
			if !r.takesSteps(n) && !t.changesState(n) {
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

// changesState reports whether n, a defer statement, can change state outside of itself: it assigns
// to a variable that is declared outside, takes its address, or sends on a channel.
func (t *inert) changesState(n ast.Node) (found bool) {
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

// absorbs reports whether the value of n is used in inert places only. The value may go through
// variables that are assigned once, at most eight deep. A single other use is enough to make it
// count, because that use may decide the steps.
func (t *inert) absorbs(n ast.Node, deep int) bool {
	for _, place := range t.places {
		if within(n, place) {
			return true
		}
	}
	// The value is assigned to variables. Follow each of their uses.
	variables := t.assignedFrom(n)
	if len(variables) == 0 || deep > 8 {
		return false
	}
	for id, object := range t.info.Uses {
		if variables[object] && !t.absorbs(id, deep+1) {
			return false
		}
	}
	return true
}

// assignedFrom returns the variables that are assigned once, with an expression that contains n. If
// several such expressions contain n, the variables of the innermost one are returned: the outer
// one may be a function literal with many other statements.
func (t *inert) assignedFrom(n ast.Node) map[types.Object]bool {
	variables, from := map[types.Object]bool{}, token.NoPos
	for object, set := range t.assigned {
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
