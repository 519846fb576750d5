package idemvet

import (
	"cmp"
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Key is the analyzer that reports idempotency keys that differ between the attempts of one
// request.
var Key = analyzer("idemkey", `find idempotency keys that differ between the attempts of one request

All attempts of a request share one key. A key that contains the time differs in every attempt. So does a random key that is generated in a retry
loop, or in the server that executes the request. idem then recognizes no attempt as a retry. A client generates the key once for each request,
and keeps it for as long as it may retry.`,
	func(pass *analysis.Pass) {
		k := &keys{functionsOf(pass)}
		in := inspectorOf(pass)
		nodes := []ast.Node{(*ast.CallExpr)(nil), (*ast.AssignStmt)(nil), (*ast.KeyValueExpr)(nil)}
		in.WithStack(nodes, func(n ast.Node, push bool, stack []ast.Node) bool {
			if !push {
				return true
			}
			if call, ok := n.(*ast.CallExpr); ok {
				k.checkCall(pass, call)
			}
			key, executes := k.keyOf(n)
			if key == nil {
				return true
			}
			// A key must never contain the time. It may contain a random value on a client that
			// generates the key once, before its retries. On a server a random value is wrong,
			// because each attempt arrives as a new call.
			random, clock := k.find(key, isRandom, 0), k.find(key, isClock, 0)
			switch made := cmp.Or(clock, random); {
			case made == nil || k.isStored(in, key, made):
			case clock != nil:
				pass.ReportRangef(key, "this key contains the time: the next attempt has another key and executes again")
			case executes && !k.isMadeBeforeLoop(stack, random):
				pass.ReportRangef(key, "this key is generated where it is used: a retry has another key and executes again. "+
					"Use the key that the client sent, or the id of the thing to create or change")
			case !executes && k.isRetried(in, stack, random):
				pass.ReportRangef(key, "this key is generated in the retry loop: generate it once before the loop, for all attempts")
			}
			return true
		})
	})

// keys implements the rules about idempotency keys for one package.
type keys struct{ *functions }

// checkCall reports swapped arguments for scope and key, and calls of an operation that do not send
// their key.
func (k *keys) checkCall(pass *analysis.Pass, call *ast.CallExpr) {
	if key := k.swaps(call); key != nil {
		pass.ReportRangef(key, "this argument is the key and is passed as the scope: swap scope and key")
	}
	if fn := k.losesKey(call); fn != nil {
		pass.ReportRangef(fn,
			"this function sends its request without the key of the call, so a repeated call has its effect twice: "+
				"send the key, or use the policy Once or Asked")
	}
}

// keyOf returns the key that n passes to a function or puts into a header, or nil. executes is true
// if n passes the key to a function of idem that claims the key. It is false if n sends the key to
// another server.
func (k *keys) keyOf(n ast.Node) (key ast.Expr, executes bool) {
	switch n := n.(type) {
	case *ast.CallExpr:
		return k.keyOfCall(n)
	case *ast.KeyValueExpr: // http.Header{"Idempotency-Key": {key}}
		if k.namesHeader(n.Key) {
			return n.Value, false
		}
	case *ast.AssignStmt: // header["Idempotency-Key"] = []string{key}
		if at, ok := n.Lhs[0].(*ast.IndexExpr); ok && len(n.Lhs) == 1 && k.namesHeader(at.Index) {
			return n.Rhs[0], false
		}
	}
	return nil, false
}

// keyOfCall does the same as keyOf for a call. It knows the functions of idem that have a key
// parameter, and the methods Set and Add of a header.
func (k *keys) keyOfCall(call *ast.CallExpr) (key ast.Expr, executes bool) {
	to := callee(k.info, call)
	switch {
	case to == nil:
	case ofIdem(to.Pkg()):
		if at := keyParam(to); at >= 0 && at < len(call.Args) {
			return call.Args[at], !strings.HasPrefix(to.Name(), "WithKey")
		}
	case isFunc(to, "net/http", "Set", "Add") && len(call.Args) == 2, isFunc(to, "net/textproto", "Set", "Add") && len(call.Args) == 2:
		if k.namesHeader(call.Args[0]) {
			return call.Args[1], false
		}
	}
	return nil, false
}

// namesHeader reports whether e is a constant with the name of an idempotency key header. Some
// services add a prefix to the name, as in Cko-Idempotency-Key.
func (k *keys) namesHeader(e ast.Expr) bool {
	return strings.HasSuffix(strings.ToLower(k.text(e)), "idempotency-key")
}

// keyParam returns the position of the parameter called key in f, or -1.
func keyParam(f *types.Func) int { return stringParam(f, "key") }

// find returns the first call in e for which the result found of is(info, call) is true. It also
// searches the expressions that are assigned to variables and fields in e, at most eight deep. It
// searches the arguments of a call only if the result through is true.
//
// If rand.Read fills a variable, no expression is assigned to the variable. find then examines the
// call of rand.Read.
func (k *keys) find(e ast.Expr, is func(info *types.Info, call *ast.CallExpr) (found, through bool), deep int) (found *ast.CallExpr) {
	ast.Inspect(e, func(n ast.Node) bool {
		if found != nil {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			if hit, through := is(k.info, n); hit {
				found = n
			} else if !through {
				return false
			}
		case *ast.SelectorExpr:
			if field, ok := k.info.Selections[n]; ok && field.Kind() == types.FieldVal {
				if set := k.fieldValue(n); set != nil && deep < 8 {
					found = k.find(set, is, deep+1)
				}
				return false
			}
		case *ast.Ident:
			if call := k.randomFills[k.info.Uses[n]]; call != nil {
				if hit, _ := is(k.info, call); hit {
					found = call
					return false
				}
			}
			if set, ok := k.soleValue(n); ok && deep < 8 {
				found = k.find(set, is, deep+1)
			}
		}
		return found == nil
	})
	return found
}

// fieldValue returns the value of the field e in the composite literal that created the struct, or
// nil.
func (k *keys) fieldValue(e *ast.SelectorExpr) ast.Expr {
	set, ok := k.soleValue(e.X)
	if !ok {
		return nil
	}
	if address, ok := ast.Unparen(set).(*ast.UnaryExpr); ok {
		set = address.X
	}
	made, ok := ast.Unparen(set).(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, element := range made.Elts {
		if field, ok := element.(*ast.KeyValueExpr); ok {
			if name, ok := field.Key.(*ast.Ident); ok && name.Name == e.Sel.Name {
				return field.Value
			}
		}
	}
	return nil
}

// isClock sets found for calls that read the clock. It does not set through for calls that reduce a
// time to a day or another unit, because the reduced value is the same for many attempts.
func isClock(info *types.Info, call *ast.CallExpr) (found, through bool) {
	f := callee(info, call)
	if isFunc(f, "time", "Format", "AppendFormat", "Date", "Year", "Month", "Day", "YearDay", "ISOWeek", "Weekday", "Truncate", "Round") {
		return false, false
	}
	return isFunc(f, "time", "Now", "Since", "Until"), true
}

// isRandom sets found for calls that return a different value each time: random numbers and
// generated IDs. Calls that derive an ID from a value, such as uuid.NewSHA1, are not random, but
// their arguments may be. isRandom recognizes ID packages, in any version, by the last part of
// their import path.
func isRandom(info *types.Info, call *ast.CallExpr) (found, through bool) {
	f := callee(info, call)
	if f == nil || f.Pkg() == nil {
		return false, true
	}
	path := f.Pkg().Path()
	switch {
	case isFunc(f, library+"/idemclient", "NewKey"):
		return true, true
	case path == "crypto/rand", path == "math/rand", path == "math/rand/v2":
		return f.Name() != "NewSource" && f.Name() != "New", true
	case isFunc(f, path, "NewSHA1", "NewMD5", "NewHash", "NewV3", "NewV5", "Parse", "MustParse", "FromString", "FromBytes"):
		return false, true
	}
	for _, kind := range []string{"uuid", "ulid", "xid", "ksuid", "nanoid", "cuid"} {
		if strings.HasSuffix(strings.TrimRight(path, "/v0123456789"), kind) || strings.HasSuffix(path, "/"+kind) {
			return hasPrefixOf(f.Name(), []string{"New", "Must", "Make", "Generate"}) && f.Name() != "Must", true
		}
	}
	return false, true
}

// isMadeBeforeLoop reports whether the node at the end of stack is in a loop, and made, which
// generates the key, comes before this loop. All attempts in the loop then share the key.
func (k *keys) isMadeBeforeLoop(stack []ast.Node, made ast.Node) bool {
	for _, n := range stack {
		switch n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			if made.Pos() < n.Pos() {
				return true
			}
		}
	}
	return false
}
