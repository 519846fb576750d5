package pgproxy

import "strings"

// Split splits a string of the simple protocol into its statements, as the server does.
func Split(sql string) []string { return split(sql) }

// Command returns up to four leading keywords of a statement in lower case, such as "rollback to
// savepoint a".
func Command(sql string) string { return strings.Join(keywords(sql, 4), " ") }

// Call is a position in the text of a statement that calls a function.
type Call struct {
	Function   string // in lower case, without its schema
	First      string // the first argument if it is a plain string constant, or ""
	Start, End int    // of the name in the text, including its schema
}

// Calls returns the function calls in the text of a statement. It does not parse SQL: any name in
// front of a parenthesis counts as a call, such as a table name in front of a list of columns.
func Calls(sql string) []Call {
	var calls []Call
	start, end := -1, -1 // of the last name; -1 if the last token ended no name
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
