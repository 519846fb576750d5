package idem

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
)

const (
	maxKey   = 255
	maxScope = 512
)

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

// checkName holds a key or a scope to its rules. They are checked before any SQL: Postgres would refuse some breaches with
// an error that aborts the transaction, and store others. The text itself never becomes part of the error.
func checkName(name string, limit int, kind error) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", kind)
	case len(name) > limit:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", kind, len(name), limit)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: it is not valid UTF-8", kind)
	}
	if i := strings.IndexFunc(name, unicode.IsControl); i >= 0 {
		return fmt.Errorf("%w: it has a control character at byte %d", kind, i)
	}
	return nil
}

func checkNames(scope, key string) error {
	return errors.Join(checkName(scope, maxScope, ErrInvalidScope), checkName(key, maxKey, ErrInvalidKey))
}

// newExecutionID returns a random UUID. It comes from the client because the call must know it even if it never hears
// from the server again.
func newExecutionID() string {
	id := pgtype.UUID{Valid: true}
	rand.Read(id.Bytes[:]) // never fails
	id.Bytes[6] = id.Bytes[6]&0x0f | 0x40
	id.Bytes[8] = id.Bytes[8]&0x3f | 0x80
	return id.String()
}
