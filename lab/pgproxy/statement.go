package pgproxy

import "strings"

// Statement is one SQL statement that a client asked to execute.
type Statement struct {
	Conn *Conn
	SQL  string // as the client sent it; empty for a portal that DECLARE opened
}

// Match selects statements. The proxy calls a Match from several goroutines at once. A nil Match
// selects every statement.
type Match func(Statement) bool

func (m Match) accepts(s Statement) bool { return m == nil || m(s) }

// Contains selects the statements whose SQL contains text.
func Contains(text string) Match {
	return func(s Statement) bool { return strings.Contains(s.SQL, text) }
}

// IsCommit selects COMMIT and END in all their spellings, with or without comments. It does not
// select COMMIT PREPARED.
func IsCommit(s Statement) bool {
	words := keywords(s.SQL, 2)
	if len(words) == 0 || words[0] != "commit" && words[0] != "end" {
		return false
	}
	return len(words) < 2 || words[1] != "prepared"
}
