package idemvet

import (
	"go/ast"
	"go/constant"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// functions is an index of a package: its functions, and the expressions that are assigned to its
// variables. With this index the rules find out where a value comes from. It is no data flow
// analysis. Most helpers follow a variable only if the package assigns it once, and so need not
// know which assignment came last. The rules therefore miss some faults, but rarely report a
// correct program.
type functions struct {
	pkg      *types.Package
	info     *types.Info
	files    []*ast.File
	declared map[*types.Func]*ast.FuncDecl

	assigned       map[types.Object][]ast.Expr    // all expressions assigned to a variable
	assignedFields map[types.Object][]ast.Expr    // all expressions assigned to fields inside a variable, at any depth
	randomFills    map[types.Object]*ast.CallExpr // the call of rand.Read that fills a variable
}

// functionsOf builds the index of the package that pass analyzes.
func functionsOf(pass *analysis.Pass) *functions {
	f := &functions{pkg: pass.Pkg, info: pass.TypesInfo, files: pass.Files, declared: map[*types.Func]*ast.FuncDecl{},
		assigned: map[types.Object][]ast.Expr{}, assignedFields: map[types.Object][]ast.Expr{}, randomFills: map[types.Object]*ast.CallExpr{}}
	for _, file := range pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if object, ok := f.info.Defs[n.Name].(*types.Func); ok {
					f.declared[object] = n
				}
			case *ast.AssignStmt:
				f.assign(n.Lhs, n.Rhs)
			case *ast.CallExpr:
				f.recordRandomFill(n)
			case *ast.ValueSpec:
				names := make([]ast.Expr, len(n.Names))
				for i, name := range n.Names {
					names[i] = name
				}
				f.assign(names, n.Values)
			}
			return true
		})
	}
	return f
}

// recordRandomFill records the variable that call fills with random bytes, if call is rand.Read.
func (f *functions) recordRandomFill(call *ast.CallExpr) {
	to := callee(f.info, call)
	if !isFunc(to, "crypto/rand", "Read") && !isFunc(to, "math/rand", "Read") || len(call.Args) != 1 {
		return
	}
	into := ast.Unparen(call.Args[0])
	if part, ok := into.(*ast.SliceExpr); ok {
		into = ast.Unparen(part.X)
	}
	if id, ok := into.(*ast.Ident); ok {
		f.randomFills[f.info.Uses[id]] = call
	}
}

// calleeOf returns the function or method that call invokes, or nil. Unlike callee, it also
// resolves a variable to which a function or method is assigned once: exec := tx.Exec; exec(ctx,
// sql).
func (f *functions) calleeOf(call *ast.CallExpr) *types.Func {
	if to := callee(f.info, call); to != nil {
		return to
	}
	set, ok := f.soleValue(call.Fun)
	if !ok {
		return nil
	}
	if name := nameOf(ast.Unparen(set)); name != nil {
		to, _ := f.info.Uses[name].(*types.Func)
		return to
	}
	return nil
}

// assign records an assignment. If a call has several results, assign records the call for each of
// the variables. An assignment to a field, at any depth, is recorded for the variable that contains
// the field. That is enough, because the rules only ask whether a value is anywhere inside a
// variable.
func (f *functions) assign(to, from []ast.Expr) {
	for i, e := range to {
		if field, ok := e.(*ast.SelectorExpr); ok && len(from) == len(to) {
			if of := root(f.info, field.X); of != nil {
				f.assignedFields[of] = append(f.assignedFields[of], from[i])
			}
			continue
		}
		id, ok := e.(*ast.Ident)
		if !ok || len(from) == 0 {
			continue
		}
		object := f.info.Defs[id]
		if object == nil {
			object = f.info.Uses[id]
		}
		if object == nil {
			continue
		}
		if len(from) == len(to) {
			f.assigned[object] = append(f.assigned[object], from[i])
		} else if i < len(from) || len(from) == 1 {
			f.assigned[object] = append(f.assigned[object], from[0]) // the variable gets one of the results of a call
		}
	}
}

// soleValue returns the expression that is assigned to the variable e, if the package contains
// exactly one assignment to it.
func (f *functions) soleValue(e ast.Expr) (ast.Expr, bool) {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return nil, false
	}
	if set := f.assigned[f.info.Uses[id]]; len(set) == 1 {
		return set[0], true
	}
	return nil, false
}

// resolve returns the functions that e may refer to: a literal, a function in the package, or the
// literals that a function in the package returns. It returns nothing for a function of another
// package, and for a variable that is assigned more than once.
func (f *functions) resolve(e ast.Expr) []ast.Node {
	switch x := ast.Unparen(e).(type) {
	case *ast.FuncLit:
		return []ast.Node{x}
	case *ast.Ident, *ast.SelectorExpr:
		if object, ok := f.info.Uses[nameOf(x)].(*types.Func); ok {
			if decl := f.declared[object.Origin()]; decl != nil {
				return []ast.Node{decl}
			}
			return nil
		}
		if set, ok := f.soleValue(e); ok {
			return f.resolve(set)
		}
	case *ast.CallExpr:
		// If the call is a conversion, such as Handler(f), the function is the converted value.
		if tv := f.info.Types[x.Fun]; tv.IsType() && len(x.Args) == 1 {
			return f.resolve(x.Args[0])
		}
		decl := f.declared[callee(f.info, x)]
		if decl == nil || decl.Body == nil {
			return nil
		}
		// If the call is a constructor, the function is one of the literals that the constructor
		// returns.
		var made []ast.Node
		ast.Inspect(decl.Body, func(n ast.Node) bool {
			if back, ok := n.(*ast.ReturnStmt); ok {
				for _, result := range back.Results {
					if literal, ok := ast.Unparen(result).(*ast.FuncLit); ok {
						made = append(made, literal)
					}
				}
			}
			return true
		})
		return made
	}
	return nil
}

// text returns the value of e if e is a string constant, and "" otherwise.
func (f *functions) text(e ast.Expr) string {
	if value := f.info.Types[e].Value; value != nil && value.Kind() == constant.String {
		return constant.StringVal(value)
	}
	return ""
}

// firstResult returns the type of the first result of call.
func (f *functions) firstResult(call *ast.CallExpr) types.Type {
	t := f.info.TypeOf(call)
	if tuple, ok := t.(*types.Tuple); ok && tuple.Len() > 0 {
		t = tuple.At(0).Type()
	}
	return t
}

// nameOf returns e itself if e is an identifier, and x for a selector such as pkg.x. It returns nil
// for any other expression.
func nameOf(e ast.Expr) *ast.Ident {
	switch x := e.(type) {
	case *ast.Ident:
		return x
	case *ast.SelectorExpr:
		return x.Sel
	}
	return nil
}

// param returns the parameter at position at of the function node. It returns nil if the parameter
// has no name.
func (f *functions) param(node ast.Node, at int) types.Object {
	i := 0
	for _, field := range typeOf(node).Params.List {
		for _, name := range field.Names {
			if i == at {
				return f.info.Defs[name]
			}
			i++
		}
		if len(field.Names) == 0 {
			i++
		}
	}
	return nil
}

// typeOf returns the function type of node, which must be an *ast.FuncLit or *ast.FuncDecl.
func typeOf(node ast.Node) *ast.FuncType {
	if literal, ok := node.(*ast.FuncLit); ok {
		return literal.Type
	}
	return node.(*ast.FuncDecl).Type
}

// blockOf returns the body of node if it is a function, and nil otherwise.
func blockOf(node ast.Node) *ast.BlockStmt {
	switch n := node.(type) {
	case *ast.FuncLit:
		return n.Body
	case *ast.FuncDecl:
		return n.Body
	}
	return nil
}

// enclosingFunc returns the innermost function that contains node, or nil. A function contains
// itself.
func (f *functions) enclosingFunc(node ast.Node) ast.Node {
	outer := f.enclosingFuncs(node)
	if len(outer) == 0 {
		return nil
	}
	return outer[len(outer)-1]
}

// enclosingFuncs returns the functions that contain node, the outermost first. If node is a
// function itself, it is the last element.
func (f *functions) enclosingFuncs(node ast.Node) (outer []ast.Node) {
	for _, file := range f.files {
		if !within(node, file) {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil || !within(node, n) {
				return false
			}
			if blockOf(n) != nil {
				outer = append(outer, n)
			}
			return true
		})
	}
	return outer
}

// assignedTo returns a variable to which a result of call is assigned, or nil.
func (f *functions) assignedTo(call *ast.CallExpr) types.Object {
	for object, set := range f.assigned {
		for _, e := range set {
			if ast.Unparen(e) == call {
				return object
			}
		}
	}
	return nil
}
