package pgproxy

import "strings"

// Split splits a string of the simple protocol into its statements, as the server does. A semicolon
// ends a statement unless it is quoted, in a comment or in parentheses. A part that has only blanks
// and comments is not a statement. If there are only such parts, Split returns the whole string,
// because the server sends one answer to it.
//
// Known limit: Split also cuts inside a function body written as BEGIN ATOMIC ... END, and the
// server does not.
func Split(sql string) []string {
	var statements []string
	start, depth, blank := 0, 0, true
	finish := func(end int) {
		if !blank {
			statements = append(statements, strings.TrimSpace(sql[start:end]))
		}
		start, blank = end+1, true
	}
	for i := 0; i < len(sql); {
		token, n := scan(sql, i)
		switch {
		case token == tokenSemicolon && depth <= 0:
			finish(i)
		case token == tokenOther && sql[i] == '(':
			depth++
		case token == tokenOther && sql[i] == ')':
			depth--
		}
		blank = blank && (token == tokenBlank || token == tokenSemicolon)
		i += n
	}
	finish(len(sql))
	if len(statements) == 0 {
		return []string{sql}
	}
	return statements
}

// keywords returns up to limit unquoted words from the beginning of sql, in lower case.
func keywords(sql string, limit int) []string {
	var words []string
	for i := 0; i < len(sql) && len(words) < limit; {
		token, n := scan(sql, i)
		switch token {
		case tokenWord:
			words = append(words, strings.ToLower(sql[i:i+n]))
		case tokenBlank:
		default:
			return words
		}
		i += n
	}
	return words
}

type token int

const (
	tokenBlank  token = iota // whitespace or a comment
	tokenWord                // keyword, unquoted name or number
	tokenQuoted              // string constant or quoted name
	tokenSemicolon
	tokenOther
)

// scan returns the token that begins at sql[i], and its length. It knows only enough SQL to
// recognize quotes and comments.
func scan(sql string, i int) (token, int) {
	rest := sql[i:]
	switch c := rest[0]; {
	case strings.HasPrefix(rest, "--"):
		return tokenBlank, through(rest, 2, "\n")
	case strings.HasPrefix(rest, "/*"):
		return tokenBlank, comment(rest)
	case isSpace(c):
		return tokenBlank, 1
	case c == ';':
		return tokenSemicolon, 1
	case c == '\'' || c == '"':
		return tokenQuoted, through(rest, 1, rest[:1]) // a doubled quote is read as two adjacent constants
	case (c == 'e' || c == 'E') && strings.HasPrefix(rest[1:], "'"):
		return tokenQuoted, escapeString(rest)
	case c == '$':
		return dollar(rest)
	case isWord(c):
		n := 1
		for n < len(rest) && (isWord(rest[n]) || rest[n] == '$') {
			n++
		}
		return tokenWord, n
	}
	return tokenOther, 1
}

// through searches s for the string end, from the offset on. It returns the length of s up to and
// including the first occurrence, or len(s) if there is none.
func through(s string, offset int, end string) int {
	if i := strings.Index(s[offset:], end); i >= 0 {
		return offset + i + len(end)
	}
	return len(s)
}

// comment returns the length of the block comment at the beginning of s. Block comments can be
// nested.
func comment(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "/*"):
			depth++
			i++
		case strings.HasPrefix(s[i:], "*/"):
			depth--
			i++
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(s)
}

// escapeString returns the length of the constant E'...' at the beginning of s. In this constant, a
// backslash can escape a quote.
func escapeString(s string) int {
	for i := 2; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '\'':
			return i + 1
		}
	}
	return len(s)
}

// dollar reads a dollar-quoted constant such as $tag$...$tag$. It treats a parameter such as $1 as
// a word.
func dollar(s string) (token, int) {
	n := 1
	for n < len(s) && isWord(s[n]) && (n > 1 || s[n] < '0' || s[n] > '9') {
		n++
	}
	if n == len(s) || s[n] != '$' {
		return tokenWord, n
	}
	tag := s[:n+1]
	return tokenQuoted, through(s, len(tag), tag)
}

func isSpace(c byte) bool { return strings.IndexByte(" \t\n\r\f\v", c) >= 0 }

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}

// Command returns the first four keywords of a statement, such as "begin" or "release
// savepoint a".
func Command(sql string) string { return strings.Join(keywords(sql, 4), " ") }

// Call is a function call in the text of a statement.
type Call struct {
	Function   string // name of the function, in lower case and without its schema
	First      string // the first argument if it is a plain string constant, or ""
	Start, End int    // where the name, including its schema, begins and ends in the text
}

// Calls returns the function calls in the text of a statement. It does not parse SQL: any name
// before a parenthesis counts as a call, even a table name before a list of columns.
func Calls(sql string) []Call {
	var calls []Call
	start, end := -1, -1 // bounds of the last name; -1 if no name ended with the last token
	for i := 0; i < len(sql); {
		token, n := scan(sql, i)
		switch {
		case token == tokenWord && (end < i || sql[i-1] != '.'):
			start, end = i, i+n
		case token == tokenWord, token == tokenOther && sql[i] == '.' && end == i:
			end = i + n
		case token == tokenOther && sql[i] == '(' && start >= 0:
			name := strings.ToLower(sql[start:end])
			calls = append(calls, Call{Function: name[strings.LastIndexByte(name, '.')+1:], First: firstConstant(sql[i+1:]), Start: start, End: end})
			start, end = -1, -1
		case token != tokenBlank:
			start, end = -1, -1
		}
		i += n
	}
	return calls
}

// firstConstant returns the string constant at the beginning of sql, or "" if there is none.
func firstConstant(sql string) string {
	for i := 0; i < len(sql); {
		token, n := scan(sql, i)
		switch {
		case token == tokenBlank:
		case token == tokenQuoted && sql[i] == '\'' && n >= 2:
			return sql[i+1 : i+n-1]
		default:
			return ""
		}
		i += n
	}
	return ""
}
