package idemvet

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// inert lists the places in a function of an operation at which a value cannot affect the steps or
// the result: log calls, and deferred code that changes no outer variable. A value that differs on
// a replay does no harm in these places. For example, programs often measure and log the duration
// of a step.
type inert struct {
	*replays
	block  *ast.BlockStmt
	places []ast.Node
}

// inertIn collects the inert places in block: log calls, and deferred code that changes no outer
// variable.
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

// logs reports whether f writes a log. The functions fmt.Print… count too.
func logs(f *types.Func) bool {
	if f == nil || f.Pkg() == nil {
		return false
	}
	path := f.Pkg().Path()
	return path == "log" || path == "log/slog" || path == "fmt" && strings.HasPrefix(f.Name(), "Print")
}

// changesState reports whether n, a defer statement, can change state outside of itself. It can do
// so if it sends on a channel, or if it assigns to a variable that is declared outside or takes the
// address of such a variable.
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
				outer(n.X) // a function that gets the address may assign to the variable
			}
		case *ast.SendStmt:
			found = true
		}
		return !found
	})
	return found
}

// absorbs reports whether the value of n is used only in inert places, such as log calls. It
// follows the value through variables that are assigned once, at most eight deep. It returns false
// if there is even one other use, because that use may decide which steps run.
func (t *inert) absorbs(n ast.Node, deep int) bool {
	for _, place := range t.places {
		if within(n, place) {
			return true
		}
	}
	// n is not in an inert place. If its value is assigned to variables, follow all uses of these
	// variables.
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

// assignedFrom returns the variables that are assigned only once, with an expression that contains
// n. If several assigned expressions contain n, assignedFrom uses the innermost. An outer
// expression may be a function literal with many other statements.
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
