package pgproxy

import "strings"

// Split takes a string of the simple protocol apart into its statements, as the server does.
func Split(sql string) []string { return split(sql) }

// Command is the words that a statement begins with, in lower case, such as "rollback to savepoint a".
func Command(sql string) string { return strings.Join(keywords(sql, 4), " ") }

// Call is a place where the text of a statement calls a function.
type Call struct {
	Function   string // in lower case, without its schema
	First      string // its first argument, if that is a plain string constant
	Start, End int    // of the name in the text, with its schema
}

// Calls finds the functions that a statement calls. What only looks like a call, such as the columns behind the name of a table, is
// one of them.
func Calls(sql string) []Call {
	var calls []Call
	start, end := -1, -1 // of the name that was read last
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

// firstConstant is the string constant at the front of sql, if there is one.
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
