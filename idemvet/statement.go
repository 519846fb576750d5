package idemvet

import (
	"regexp"
	"slices"
	"strings"
)

// endsTransaction reports whether a statement in sql ends the transaction in which it runs.
// ROLLBACK TO SAVEPOINT does not end the transaction. COMMIT PREPARED and ROLLBACK PREPARED end
// another transaction and do not count.
//
// sql may contain several statements. It is split at semicolons after strings and comments have
// been removed, because a COMMIT in a string or in the body of a DO block is not a statement of its
// own.
func endsTransaction(sql string) bool {
	for statement := range strings.SplitSeq(strings.ToUpper(withoutQuotes(sql)), ";") {
		words := strings.Fields(statement)
		if len(words) == 0 {
			continue
		}
		if slices.Contains(words, "ATOMIC") {
			// The body of an SQL function follows: BEGIN ATOMIC …; END. The END belongs to the
			// function and does not end the transaction. The text after the function is not
			// examined.
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
	escaped   = regexp.MustCompile(`(?s)^(?:\\.|''|[^'\\])*'`)                 // the rest of a string that begins with E'
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

// afterQuote returns the text after the end of a comment or quote. opened is the text that began
// the comment or quote, and rest is the text after opened. A doubled quote inside a string needs no
// special case: it looks like the end of one string and the beginning of the next.
func afterQuote(opened, rest string) string {
	switch opened {
	case "/*": // comments can be nested
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
