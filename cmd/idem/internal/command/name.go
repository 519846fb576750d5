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
	Scope string `arg:"" help:"Scope, as it is stored: idem list shows it."`
	Key   string `arg:"" help:"Key. -: read it from standard input, where no list of processes and no history of a shell shows it."`
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

// shownKey returns a key for display, abridged unless whole is set.
func shownKey(key string, whole bool) string {
	if whole {
		return page.Safe(key)
	}
	return display.Key(key)
}

// jsonKey is like shownKey, but does not escape: the JSON encoder does.
func jsonKey(key string, whole bool) string {
	if whole {
		return key
	}
	return display.Key(key)
}

// scopeHint returns a hint if scope has more than one slash. The caller may have written a scope
// with unescaped slashes in its parts.
func scopeHint(scope string) string {
	if strings.Count(scope, "/") > 1 {
		return fmt.Sprintf("; a slash inside a part of a scope is stored as %%2F, as in %q", idem.Scope("tenant-1", "POST /orders"))
	}
	return ""
}
