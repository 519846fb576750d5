package idemvet

import (
	"regexp"
	"slices"
	"strings"
)

// endsTransaction reports whether one of the statements in an SQL text ends the transaction.
// ROLLBACK TO SAVEPOINT does not end it. COMMIT PREPARED ends another transaction.
func endsTransaction(sql string) bool {
	for statement := range strings.SplitSeq(strings.ToUpper(withoutQuotes(sql)), ";") {
		words := strings.Fields(statement)
		if len(words) == 0 {
			continue
		}
		if slices.Contains(words, "ATOMIC") {
			return false // the body of an SQL function follows: BEGIN ATOMIC …; END
		}
		switch words[0] {
		case "COMMIT", "END", "ROLLBACK", "ABORT":
			if !slices.Contains(words, "TO") && !slices.Contains(words, "PREPARED") {
				return true
			}
		case "PREPARE":
			if len(words) > 1 && words[1] == "TRANSACTION" {
				return true
			}
		}
	}
	return false
}

var (
	opening   = regexp.MustCompile(`--|/\*|\$(?:[A-Za-z_]\w*)?\$|\b[eE]'|'|"`)
	escaped   = regexp.MustCompile(`(?s)^(?:\\.|''|[^'\\])*'`)
	commentAt = regexp.MustCompile(`/\*|\*/`)
)

// withoutQuotes returns sql with each comment, string and quoted identifier replaced by a space.
func withoutQuotes(sql string) string {
	var plain strings.Builder
	for {
		at := opening.FindStringIndex(sql)
		if at == nil {
			return plain.String() + sql
		}
		plain.WriteString(sql[:at[0]] + " ")
		opened := sql[at[0]:at[1]]
		sql = behind(opened, sql[at[1]:])
	}
}

// behind returns the text after the end of a comment or quote. The comment or quote began with
// opened, and rest follows it.
func behind(opened, rest string) string {
	switch opened {
	case "/*": // comments nest
		for depth := 1; depth > 0; {
			at := commentAt.FindStringIndex(rest)
			if at == nil {
				return ""
			}
			if rest[at[0]] == '/' {
				depth++
			} else {
				depth--
			}
			rest = rest[at[1]:]
		}
		return rest
	case "e'", "E'":
		return rest[len(escaped.FindString(rest)):]
	case "--":
		opened = "\n"
	}
	_, rest, _ = strings.Cut(rest, opened)
	return rest
}
