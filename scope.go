package idem

import "strings"

// A percent sign is escaped too, or the part "a%2Fb" would be taken for "a/b".
var escapePart = strings.NewReplacer("/", "%2F", "%", "%25")

// Scope joins parts, such as a tenant and an operation, into a scope for Do: Scope("tenant-1", "POST /orders") is
// "tenant-1/POST %2Forders".
//
// A "/" goes between parts. Inside a part, "/" becomes "%2F" and "%" becomes "%25"; all else stays as it is. So two lists of
// parts never give the same scope, with one exception: no part and one empty part both give "". Do refuses that with
// ErrInvalidScope, as it does a scope of more than 512 bytes, with control characters or with invalid UTF-8, none of which
// Scope alters.
func Scope(parts ...string) string {
	var scope strings.Builder
	for i, part := range parts {
		if i > 0 {
			scope.WriteByte('/')
		}
		escapePart.WriteString(&scope, part)
	}
	return scope.String()
}
