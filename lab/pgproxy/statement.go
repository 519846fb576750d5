package pgproxy

import "strings"

// Statement is one SQL statement that a client asked to execute.
type Statement struct {
	Conn *Conn
	SQL  string // as the client sent it; empty for a portal that was opened by SQL (DECLARE)
}

// Match chooses statements. It is called from the goroutines of several connections at a time. A nil Match chooses all.
type Match func(Statement) bool

func (m Match) accepts(s Statement) bool { return m == nil || m(s) }

// Contains chooses statements that have text in their SQL.
func Contains(text string) Match {
	return func(s Statement) bool { return strings.Contains(s.SQL, text) }
}

// IsCommit chooses COMMIT in all its spellings, with or without comments around it. COMMIT PREPARED is none.
func IsCommit(s Statement) bool {
	words := keywords(s.SQL, 2)
	if len(words) == 0 || words[0] != "commit" && words[0] != "end" {
		return false
	}
	return len(words) < 2 || words[1] != "prepared"
}
