package idemvet

import (
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// swaps detects a call with swapped arguments for scope and key. It returns the argument for the
// scope if this argument looks like a key and the argument for the key looks like a scope.
// Otherwise it returns nil. Both parameters are strings, so the compiler does not notice the
// mistake. Both arguments must look wrong, because one name alone may mislead.
func (k *keys) swaps(call *ast.CallExpr) ast.Expr {
	to := callee(k.info, call)
	if to == nil || !ofIdem(to.Pkg()) && to.Pkg() != k.pkg {
		return nil
	}
	scope, key := stringParam(to, "scope"), stringParam(to, "key")
	if scope < 0 || key < 0 || max(scope, key) >= len(call.Args) {
		return nil
	}
	if k.looksLikeKey(call.Args[scope], 0) && k.looksLikeScope(call.Args[key], 0) {
		return call.Args[scope]
	}
	return nil
}

// looksLikeKey reports whether e has the name of a key or reads the Idempotency-Key header.
func (k *keys) looksLikeKey(e ast.Expr, deep int) bool {
	e = ast.Unparen(e)
	if call, ok := e.(*ast.CallExpr); ok {
		return isFunc(callee(k.info, call), "net/http", "Get") && len(call.Args) == 1 && k.namesHeader(call.Args[0])
	}
	if name := nameOf(e); name != nil {
		words := word.FindAllString(name.Name, -1)
		last := len(words) - 1
		if last >= 0 && strings.EqualFold(words[last], "key") &&
			(last == 0 || !isScopeName(words[last-1]) && !isOtherKey[strings.ToLower(words[last-1])]) {
			return true
		}
	}
	set, ok := k.soleValue(e)
	return ok && deep < 8 && k.looksLikeKey(set, deep+1)
}

// isOtherKey lists the words before "Key" in names of keys that are not idempotency keys, as in
// apiKey.
var isOtherKey = map[string]bool{"api": true, "access": true, "public": true, "secret": true, "private": true, "partition": true, "shard": true,
	"cache": true, "primary": true, "foreign": true}

// looksLikeScope reports whether e identifies the caller or the operation, as do a call of
// idem.Scope, a tenant name and the path of a URL.
func (k *keys) looksLikeScope(e ast.Expr, deep int) bool {
	switch x := ast.Unparen(e).(type) {
	case *ast.BinaryExpr:
		return !k.mentionsKey(x) && (k.looksLikeScope(x.X, deep) || k.looksLikeScope(x.Y, deep))
	case *ast.CallExpr:
		return k.returnsScope(x)
	case *ast.SelectorExpr:
		return isScopeName(x.Sel.Name) || isNamed(k.info.TypeOf(x.X), "net/url", "URL") && x.Sel.Name == "Path"
	case *ast.Ident:
		if isScopeName(x.Name) {
			return true
		}
	}
	set, ok := k.soleValue(e)
	return ok && deep < 8 && k.looksLikeScope(set, deep+1)
}

// returnsScope reports whether call is a call of idem.Scope, or reads a header that identifies the
// caller.
func (k *keys) returnsScope(call *ast.CallExpr) bool {
	to := callee(k.info, call)
	if isFunc(to, "net/http", "Get") && len(call.Args) == 1 {
		return isScopeName(k.text(call.Args[0]))
	}
	return isFunc(to, library, "Scope") && !k.mentionsKey(call)
}

// mentionsKey reports whether a part of e looks like a key.
func (k *keys) mentionsKey(e ast.Expr) bool {
	return contains(e, func(part ast.Expr) bool { return k.looksLikeKey(part, 0) })
}

// word matches one word in an identifier in camel case or in the name of a header field.
var word = regexp.MustCompile(`[A-Z]*[a-z0-9]+|[A-Z]+`)

// isScopeName reports whether name looks like the name of a scope or of a caller, as do tenantID
// and X-User-Id.
func isScopeName(name string) bool {
	words := word.FindAllString(name, -1)
	if last := len(words) - 1; last > 0 && strings.EqualFold(words[last], "id") {
		words = words[:last]
	}
	return len(words) > 0 && slices.Contains([]string{"scope", "tenant", "user", "account", "customer", "merchant", "organization", "org"},
		strings.ToLower(words[len(words)-1]))
}

// stringParam returns the position of the string parameter called name in f, or -1.
func stringParam(f *types.Func, name string) int {
	params := f.Signature().Params()
	for i := range params.Len() {
		if basic, ok := params.At(i).Type().(*types.Basic); ok && basic.Kind() == types.String && params.At(i).Name() == name {
			return i
		}
	}
	return -1
}
