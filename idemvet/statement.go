package idemvet

import (
	"regexp"
	"slices"
	"strings"
)

// endsTransaction reports whether one of the statements in an SQL text ends the transaction.
// ROLLBACK TO SAVEPOINT does not end it. COMMIT PREPARED ends another transaction.
//
// The text may be a whole script. It is split at semicolons, after quotes and comments are removed:
// a COMMIT in a string or in the body of a DO block is no statement of the script.
func endsTransaction(sql string) bool {
	for statement := range strings.SplitSeq(strings.ToUpper(withoutQuotes(sql)), ";") {
		words := strings.Fields(statement)
		if len(words) == 0 {
			continue
		}
		if slices.Contains(words, "ATOMIC") {
			// The body of an SQL function follows: BEGIN ATOMIC …; END. Its END is no statement of
			// the script. What comes after the function is not examined.
			return false
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
	opening   = regexp.MustCompile(`--|/\*|\$(?:[A-Za-z_]\w*)?\$|\b[eE]'|'|"`) // the beginning of a comment or quote
	escaped   = regexp.MustCompile(`(?s)^(?:\\.|''|[^'\\])*'`)                 // the rest of an E'' string
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
		sql = afterQuote(opened, sql[at[1]:])
	}
}

// afterQuote returns the text after the end of a comment or quote. The comment or quote began with
// opened, and rest follows it. A doubled quote inside a string needs no care: it ends the string
// and begins another one at once.
func afterQuote(opened, rest string) string {
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
