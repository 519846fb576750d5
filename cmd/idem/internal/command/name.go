package command

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/internal/display"
)

// name has the arguments that identify a record.
type name struct {
	Scope string `arg:"" help:"Scope as it is stored and idem list shows it."`
	Key   string `arg:"" help:"Key. -: read it from standard input, so that no list of processes or shell history shows it."`
}

// resolve reads the key from standard input if the argument is "-". It fails if the line is empty.
func (n *name) resolve(s *session) error {
	if n.Key == "-" {
		line, err := bufio.NewReader(s.Stdin).ReadString('\n')
		if n.Key = strings.TrimRight(line, "\r\n"); n.Key == "" {
			return fmt.Errorf("no key on standard input: %w", err)
		}
	}
	return nil
}

// String names the record in a message, with the key abridged.
func (n *name) String() string {
	return fmt.Sprintf("key %s in scope %s", display.Key(n.Key), page.Safe(n.Scope))
}

// missing is the error for a record that does not exist.
func (n *name) missing() error {
	return noRecordError{"there is no record of " + n.String() + scopeHint(n.Scope)}
}

// abridge abridges a key for display, unless whole is set. A message may have an empty key.
func abridge(key *string, whole bool) {
	if !whole && *key != "" {
		*key = display.Key(*key)
	}
}

// scopeHint returns a hint if scope has more than one slash. The caller may have written a scope
// with unescaped slashes in its parts.
func scopeHint(scope string) string {
	if strings.Count(scope, "/") > 1 {
		return fmt.Sprintf("; a slash inside a part of a scope is stored as %%2F, as in %q", idem.Scope("tenant-1", "POST /orders"))
	}
	return ""
}
