package command

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/internal/display"
)

// name holds the arguments scope and key of a command.
type name struct {
	Scope string `arg:"" help:"Scope, as it is stored: idem list shows it."`
	Key   string `arg:"" help:"Key. -: read it from standard input, where no list of processes and no history of a shell shows it."`
}

// resolve reads the key from standard input if it is "-". It fails if there is no key.
func (n *name) resolve(s *session) error {
	if n.Key == "-" {
		line, err := bufio.NewReader(s.Stdin).ReadString('\n')
		if n.Key = strings.TrimRight(line, "\r\n"); n.Key == "" {
			return fmt.Errorf("no key on standard input: %w", err)
		}
	}
	return nil
}

// String describes the key in messages.
func (n *name) String() string {
	return fmt.Sprintf("key %s in scope %s", display.Key(n.Key), page.Safe(n.Scope))
}

// shownKey returns a key for output: printable, and abridged unless whole.
func shownKey(key string, whole bool) string {
	if whole {
		return page.Safe(key)
	}
	return display.Key(key)
}

// jsonKey is shownKey for JSON, which needs no other escapes.
func jsonKey(key string, whole bool) string {
	if whole {
		return key
	}
	return display.Key(key)
}

// scopeHint returns a hint if the scope looks as if its parts were not escaped.
func scopeHint(scope string) string {
	if strings.Count(scope, "/") > 1 {
		return fmt.Sprintf("; a slash inside a part of a scope is stored as %%2F, as in %q", idem.Scope("tenant-1", "POST /orders"))
	}
	return ""
}
