package idemvet

import (
	"go/ast"
	"go/constant"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// functions indexes a package: its functions, and the expressions that are assigned to its
// variables. The rules use it to find out where a value comes from. This is no data flow analysis:
// most helpers follow a variable only if the package assigns it once, so that they do not have to
// know which assignment came last. A rule misses some faults that way, and rarely reports a correct
// program.
type functions struct {
	pkg      *types.Package
	info     *types.Info
	files    []*ast.File
	declared map[*types.Func]*ast.FuncDecl

	assigned       map[types.Object][]ast.Expr    // all expressions assigned to a variable
	assignedFields map[types.Object][]ast.Expr    // all expressions assigned to its fields, and to fields of those
	randomFills    map[types.Object]*ast.CallExpr // the call that fills a variable with random bytes
}

// functionsOf builds the index of a package.
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

// recordRandomFill records a call of rand.Read, for a slice or a part of an array.
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

// calleeOf is callee, and also resolves a call through a variable to which a function or method is
// assigned once, as in exec := tx.Exec; exec(ctx, sql).
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

// assign records an assignment. For a call with several results, each variable is assigned the
// call. An assignment to a field of a struct is recorded for the variable of the struct, however
// deep the field is: the rules only ask whether a value is anywhere inside the variable.
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
			f.assigned[object] = append(f.assigned[object], from[0]) // one of the results of a call
		}
	}
}

// soleValue returns the expression that is assigned to the variable e, if there is only one
// assignment in the package.
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

// resolve returns the functions that e may be: a literal, a function of the package, or the
// literals that a function of the package returns. It finds none for a function of another package,
// and for a variable that is assigned more than once.
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
		// A conversion, such as Handler(f).
		if tv := f.info.Types[x.Fun]; tv.IsType() && len(x.Args) == 1 {
			return f.resolve(x.Args[0])
		}
		decl := f.declared[callee(f.info, x)]
		if decl == nil || decl.Body == nil {
			return nil
		}
		// A constructor: the function is one of the literals that it returns.
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

// text returns the string constant e, or "".
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

// nameOf returns the identifier of a name or of a selector, or nil.
func nameOf(e ast.Expr) *ast.Ident {
	switch x := e.(type) {
	case *ast.Ident:
		return x
	case *ast.SelectorExpr:
		return x.Sel
	}
	return nil
}

// param returns the parameter of the function node at position at, or nil if it has no name.
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

// typeOf returns the type of node, an *ast.FuncLit or *ast.FuncDecl.
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

// enclosingFunc returns the innermost function that contains node, or nil.
func (f *functions) enclosingFunc(node ast.Node) ast.Node {
	outer := f.enclosingFuncs(node)
	if len(outer) == 0 {
		return nil
	}
	return outer[len(outer)-1]
}

// enclosingFuncs returns the functions that contain node, the outermost first. If node is a
// function, it is the last of them.
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

// assignedTo returns the variable that the result of call is assigned to, or nil. Of several
// results, one variable is returned.
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
