package qualify

import (
	"fmt"

	"github.com/idem-go/idem/tools/syntax"
)

// These SQL comments mark the beginning and the end of a timestamptz column in the text. The text
// format of a timestamptz depends on settings of the session. In the simple protocol, which returns
// text, package roundtrip therefore replaces the marks by a call of timestamptz_send around the
// column.
const (
	momentBegins = "/*moment*/"
	momentEnds   = "/**/"
)

// Send inserts marks around the result columns with the indices in columns. These columns must be
// of type timestamptz. In the simple protocol, package roundtrip replaces the marks by a call of
// timestamptz_send around the column.
func Send(sql string, columns []int) (string, error) {
	if len(columns) == 0 {
		return sql, nil
	}
	tree, err := syntax.Parse(sql)
	if err != nil {
		return "", err
	}
	q := &qualifier{sql: sql}
	if q.tokens, err = tokens(sql); err != nil {
		return "", err
	}
	targets, err := results(tree)
	if err != nil {
		return "", err
	}
	for _, column := range columns {
		if column >= len(targets) {
			return "", fmt.Errorf("the statement has %d columns in its text, and more in sqlc's list: write no *", len(targets))
		}
		q.send(targets[column].(node)["ResTarget"].(node))
	}
	if q.err != nil {
		return "", q.err
	}
	// Check the result: the inserted marks must not change the number of columns.
	sent := q.edited()
	if tree, err = syntax.Parse(sent); err != nil {
		return "", fmt.Errorf("what was made of the statement is not understood: %w\n%s", err, sent)
	}
	again, err := results(tree)
	if err == nil && len(again) != len(targets) {
		err = fmt.Errorf("what was made of the statement has other columns: write AS before an alias\n%s", sent)
	}
	return sent, err
}

// send inserts marks around one column. The function call that later replaces the marks has no
// column name, so a column without an alias gets its own name as the alias.
func (q *qualifier) send(target node) {
	start := location(target)
	stop := end(q.tokens, q.at(start), false)
	named := ""
	if target["name"] == nil {
		column, ok := target["val"].(node)["ColumnRef"].(node)
		if !ok {
			q.fail(start, "a moment has no name: write AS")
			return
		}
		fields := column["fields"].([]any)
		named = " AS " + syntax.Name(fields)
	}
	q.insert(start, openRank, momentBegins)
	q.insert(stop, closeRank, momentEnds+named)
}

// results returns the expressions in the RETURNING or SELECT list of a statement. It fails for a
// UNION, because each of its columns is in the text more than once.
func results(tree any) ([]any, error) {
	statements, _ := tree.(node)["stmts"].([]any)
	if len(statements) != 1 {
		return nil, fmt.Errorf("it is not one statement")
	}
	for _, statement := range statements[0].(node)["stmt"].(node) {
		s := statement.(node)
		if list, ok := s["returningList"].([]any); ok {
			return list, nil
		}
		if list, ok := s["targetList"].([]any); ok && (s["op"] == nil || s["op"] == "SETOP_NONE") {
			return list, nil
		}
	}
	return nil, fmt.Errorf("its moments are in a UNION: select from it")
}
