package check

import (
	"fmt"
	"strings"

	"github.com/idem-go/idem/lab/torture/rule"
)

// Violation is a promise that was not kept.
type Violation struct {
	Rule       rule.Rule
	Scope, Key string // empty if the violation is not about one key
	Detail     string
	History    []string // the calls that led to it
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "NOT KEPT: %s\n", v.Rule)
	if v.Key != "" {
		fmt.Fprintf(&b, "  scope %s, key %s\n", v.Scope, v.Key)
	}
	if v.Detail != "" {
		fmt.Fprintf(&b, "  %s\n", v.Detail)
	}
	for _, line := range v.History {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	return b.String()
}
