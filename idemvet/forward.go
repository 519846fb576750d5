package idemvet

import (
	"go/ast"
	"go/types"
	"net/http"
	"strings"
)

// losesKey checks a call of package operation with the policy Keyed. It returns the function that
// the call executes if that function sends a request without the key, and nil otherwise. A function
// may leave out the key if it only reads, or if it sends a key of its own.
//
// With the policy Keyed, a call is repeated after a crash, because the other system is expected to
// recognize the key. Without the key, the repeated call has its effect a second time.
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

// policyAt returns the position of the argument with the call policy if f is operation.Call, Go or
// UndoCall, and -1 otherwise. The next argument is the function that makes the call.
func policyAt(f *types.Func) int {
	switch {
	case isFunc(f, library+"/operation", "Call", "Go"):
		return 2
	case isFunc(f, library+"/operation", "UndoCall"):
		return 0
	}
	return -1
}

// isKeyed reports whether the expression policy calls operation.Keyed.
func (k *keys) isKeyed(policy ast.Expr) bool {
	if set, ok := k.soleValue(policy); ok {
		policy = set
	}
	return contains(policy, func(call *ast.CallExpr) bool { return isFunc(callee(k.info, call), library+"/operation", "Keyed") })
}

// ignores reports whether the function fn does not use its parameter at position at. Logging the
// parameter, or passing it to a function that ignores it, does not count as use. ignores assumes
// that a function without a body, or more than eight calls away, uses the parameter.
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

// discards reports whether n is the assignment _ = param.
func (k *keys) discards(n *ast.AssignStmt, param types.Object) bool {
	id, ok := n.Lhs[0].(*ast.Ident)
	return ok && id.Name == "_" && len(n.Lhs) == 1 && k.variable(n.Rhs[0]) == param
}

// forwards reports whether call, a call of the function decl, passes param on to code that uses it.
func (k *keys) forwards(decl *ast.FuncDecl, call *ast.CallExpr, param types.Object, deep int) bool {
	for i, arg := range call.Args {
		if mentions(k.info, arg, param) && (k.variable(arg) != param || !k.ignores(decl, i, deep+1)) {
			return true
		}
	}
	return mentions(k.info, call.Fun, param)
}

// sends reports whether fn calls another service without any sign that repeating the call is
// harmless, such as a GET or a key of its own. One such sign exempts the whole function. If a
// function contains a GET and a POST, the rule cannot tell which of the two the policy is about.
func (k *keys) sends(fn ast.Node) bool {
	s := &sending{keys: k, seen: map[ast.Node]bool{}}
	s.look(fn)
	return s.calls && !s.harmless
}

// sending describes what a function sends, by itself or through functions of the package that it
// calls.
type sending struct {
	*keys
	seen     map[ast.Node]bool
	calls    bool // the function calls another service
	harmless bool // the function uses GET, PUT or DELETE, or a key of its own
}

// look examines fn and, recursively, the functions in the package that fn calls.
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

// isOwnKey reports whether id names a key, or the ID of an operation. Parameters do not count: when
// this rule runs, it already knows that the function ignores its key parameter.
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

// isHarmless reports whether e is the name of a key header, or of an HTTP method that may be
// repeated. RFC 9110 defines PUT and DELETE as idempotent.
func (s *sending) isHarmless(e ast.Expr) bool {
	switch s.text(e) {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions:
		return true
	}
	return s.namesHeader(e)
}

// harmlessNames are name prefixes of functions that may be repeated. They only read, set a value
// under a given name, or prepare a call.
var harmlessNames = []string{
	"get", "list", "find", "lookup", "fetch", "query", "read", "search", "check", "status", "describe", "poll", "wait",
	"ping", "load", "put", "set", "delete", "upsert", "head", "new", "with",
}

// callsOut reports whether call probably calls another service: through a known client, or through
// any other function outside the package that takes a context. A function that returns a context
// does not count, because it only derives a context.
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

// isLocal reports whether path belongs to pgx or to the standard library, except package net.
// Functions there may take a context but call no other service.
func isLocal(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return path == pgx || strings.HasPrefix(path, pgx+"/") || !strings.Contains(first, ".") && first != "net"
}
