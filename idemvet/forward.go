package idemvet

import (
	"go/ast"
	"go/types"
	"net/http"
	"strings"
)

// losesKey returns the function of a Keyed call if that function sends its request without the key,
// and nil otherwise. A function that only reads, or that takes its key from elsewhere, is fine.
//
// The policy Keyed promises that the other system recognizes a repeated key. After a crash the call
// is made again, and without the key it has its effect a second time.
func (k *keys) losesKey(call *ast.CallExpr) ast.Expr {
	at := policyAt(callee(k.info, call))
	if at < 0 || at+1 >= len(call.Args) || !k.isKeyed(call.Args[at]) {
		return nil
	}
	for _, fn := range k.resolve(call.Args[at+1]) {
		if k.ignores(fn, 1, 0) && k.sends(fn) {
			return call.Args[at+1]
		}
	}
	return nil
}

// policyAt returns the position of the policy argument of f, a function that makes a call of an
// operation, or -1. The function of the call is the next argument.
func policyAt(f *types.Func) int {
	switch {
	case isFunc(f, library+"/operation", "Call", "Go"):
		return 2
	case isFunc(f, library+"/operation", "UndoCall"):
		return 0
	}
	return -1
}

// isKeyed reports whether operation.Keyed makes the policy.
func (k *keys) isKeyed(policy ast.Expr) bool {
	if set, ok := k.soleValue(policy); ok {
		policy = set
	}
	return contains(policy, func(call *ast.CallExpr) bool { return isFunc(callee(k.info, call), library+"/operation", "Keyed") })
}

// ignores reports whether fn does not use the parameter at position at. Logging the parameter, or
// passing it to a function that ignores it, does not count as use. A function without a body, or
// one that is more than eight calls away, counts as a user.
func (k *keys) ignores(fn ast.Node, at, deep int) bool {
	param, block := k.param(fn, at), blockOf(fn)
	if param == nil {
		return true
	}
	if block == nil || deep > 8 {
		return false
	}
	used := false
	ast.Inspect(block, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if k.discards(n, param) {
				return false
			}
		case *ast.CallExpr:
			to := callee(k.info, n)
			if logs(to) {
				return false
			}
			if decl := k.declared[to]; decl != nil && !used {
				used = k.forwards(decl, n, param, deep)
				return false
			}
		case *ast.Ident:
			used = used || k.info.Uses[n] == param
		}
		return !used
	})
	return !used
}

// discards reports whether n is _ = key.
func (k *keys) discards(n *ast.AssignStmt, param types.Object) bool {
	id, ok := n.Lhs[0].(*ast.Ident)
	return ok && id.Name == "_" && len(n.Lhs) == 1 && k.variable(n.Rhs[0]) == param
}

// forwards reports whether call passes param to a function of the package that uses it.
func (k *keys) forwards(decl *ast.FuncDecl, call *ast.CallExpr, param types.Object, deep int) bool {
	for i, arg := range call.Args {
		if mentions(k.info, arg, param) && (k.variable(arg) != param || !k.ignores(decl, i, deep+1)) {
			return true
		}
	}
	return mentions(k.info, call.Fun, param)
}

// sends reports whether fn makes a call that must not be repeated, and has no key of its own for
// it. One sign that a repetition is harmless exempts the whole function: with a GET and a POST in
// one function, the rule cannot tell which of them the policy is about.
func (k *keys) sends(fn ast.Node) bool {
	s := &sending{keys: k, seen: map[ast.Node]bool{}}
	s.look(fn)
	return s.calls && !s.harmless
}

// sending is what a function sends, including the functions of the package that it calls.
type sending struct {
	*keys
	seen     map[ast.Node]bool
	calls    bool // the function calls another service
	harmless bool // the function uses GET, PUT or DELETE, or a key of its own
}

// look examines fn and the functions of the package that it calls.
func (s *sending) look(fn ast.Node) {
	block := blockOf(fn)
	if block == nil || s.seen[fn] {
		return
	}
	s.seen[fn] = true
	ast.Inspect(block, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			to := s.calleeOf(n)
			if logs(to) {
				return false
			}
			if decl := s.declared[to]; decl != nil {
				s.look(decl)
			} else if s.callsOut(to, n) {
				s.calls = true
			}
		case *ast.Ident:
			s.harmless = s.harmless || s.isOwnKey(n)
		}
		if e, ok := n.(ast.Expr); ok {
			s.harmless = s.harmless || s.isHarmless(e)
		}
		return true
	})
}

// isOwnKey reports whether id names a key or the ID of an operation. Parameters do not count: the
// rule has found that the function ignores its key.
func (s *sending) isOwnKey(id *ast.Ident) bool {
	object := s.info.Uses[id]
	if f, ok := object.(*types.Func); ok {
		return isFunc(f, library+"/operation", "ID", "CallKey")
	}
	for fn := range s.seen {
		if isWithin(object, typeOf(fn)) {
			return false
		}
	}
	_, ok := object.(*types.Var)
	name := strings.ToLower(id.Name)
	return ok && (strings.Contains(name, "key") || strings.Contains(name, "idempot"))
}

// isHarmless reports whether e is the name of an HTTP method that may be repeated, or of a key
// header. RFC 9110 defines PUT and DELETE as idempotent.
func (s *sending) isHarmless(e ast.Expr) bool {
	switch s.text(e) {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions:
		return true
	}
	return s.namesHeader(e)
}

// harmlessNames are the prefixes of functions that read, that write under a name, or that only
// prepare a call.
var harmlessNames = []string{
	"get", "list", "find", "lookup", "fetch", "query", "read", "search", "check", "status", "describe", "poll", "wait",
	"ping", "load", "put", "set", "delete", "upsert", "head", "new", "with",
}

// callsOut reports whether call is a call to another service: of a known client, or of any other
// function outside the package that takes a context. A function that returns a context only derives
// one, and calls nothing.
func (s *sending) callsOut(to *types.Func, call *ast.CallExpr) bool {
	name := nameOf(ast.Unparen(call.Fun))
	if name == nil || hasPrefixOf(strings.ToLower(name.Name), harmlessNames) {
		return false
	}
	if externalCall(to) != "" {
		return true
	}
	if to != nil && (ofIdem(to.Pkg()) || to.Pkg() == nil || isLocal(to.Pkg().Path())) {
		return false
	}
	return len(call.Args) > 0 && isContext(s.info.TypeOf(call.Args[0])) && !isContext(s.firstResult(call))
}

// isLocal reports whether path is the standard library or pgx. Their functions take a context but
// call no other service.
func isLocal(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return path == pgx || strings.HasPrefix(path, pgx+"/") || !strings.Contains(first, ".") && first != "net"
}
