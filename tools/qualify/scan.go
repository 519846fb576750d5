package qualify

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/idem-go/idem/tools/syntax"
)

// token is a token of the SQL text. depth is the number of parentheses, brackets and CASE
// expressions around the token.
type token struct {
	start, end int
	text       string // the text of the token, in capitals if it is a keyword
	depth      int
	isKeyword  bool
}

func (t *token) isOperator() bool { return strings.Trim(t.text, "+-*/<>=~!@#%^&|`?") == "" }

// tokens returns the tokens of sql without the comments. A token that opens or closes a group, such
// as a parenthesis, has the depth of the tokens outside of the group.
func tokens(sql string) ([]token, error) {
	encoded, err := syntax.Scan(sql)
	if err != nil {
		return nil, err
	}
	var scanned []token
	depth := 0
	err = fields(encoded, func(number protowire.Number, _ uint64, message []byte) error {
		if number != fieldTokens {
			return nil
		}
		var values [6]uint64
		err := fields(message, func(number protowire.Number, value uint64, _ []byte) error {
			if int(number) < len(values) {
				values[number] = value
			}
			return nil
		})
		t := token{start: int(values[fieldStart]), end: int(values[fieldEnd]), isKeyword: values[fieldKeyword] != 0}
		t.text = sql[t.start:t.end]
		if strings.HasPrefix(t.text, "--") || strings.HasPrefix(t.text, "/*") {
			return err
		}
		if t.isKeyword {
			t.text = strings.ToUpper(t.text)
		}
		if closes(&t) {
			depth--
		}
		t.depth = depth
		if opens(&t) {
			depth++
		}
		scanned = append(scanned, t)
		return err
	})
	return scanned, err
}

func opens(t *token) bool {
	return t.text == "(" || t.text == "[" || t.isKeyword && t.text == "CASE"
}

func closes(t *token) bool {
	return t.text == ")" || t.text == "]" || t.isKeyword && t.text == "END"
}

// These are the field numbers of the protobuf messages ScanResult and ScanToken of pg_query. The
// numbers are repeated here because the Go package that declares these messages needs a C compiler.
const (
	fieldTokens  = 2
	fieldStart   = 1
	fieldEnd     = 2
	fieldKeyword = 5
)

// fields decodes a protobuf message and calls f for each of its fields. f receives the content of a
// number field in value, and the content of a string or a nested message in message.
func fields(encoded []byte, f func(number protowire.Number, value uint64, message []byte) error) error {
	for len(encoded) > 0 {
		number, kind, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return errors.New("the tokens are not understood")
		}
		encoded = encoded[n:]
		var value uint64
		var message []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(encoded)
		case protowire.BytesType:
			message, n = protowire.ConsumeBytes(encoded)
		default:
			return fmt.Errorf("the tokens have a field of kind %d", kind)
		}
		if n < 0 {
			return errors.New("the tokens are cut off")
		}
		encoded = encoded[n:]
		if err := f(number, value, message); err != nil {
			return err
		}
	}
	return nil
}

// endsExpression contains the keywords that end an expression, unless they are inside parentheses.
var endsExpression = map[string]bool{
	"AND": true, "OR": true, "IS": true, "ISNULL": true, "NOTNULL": true, "IN": true, "LIKE": true, "ILIKE": true, "SIMILAR": true, "BETWEEN": true,
	"THEN": true, "WHEN": true, "ELSE": true, "END": true, "FROM": true, "WHERE": true, "GROUP": true, "HAVING": true, "WINDOW": true, "UNION": true,
	"INTERSECT": true, "EXCEPT": true, "ORDER": true, "LIMIT": true, "OFFSET": true, "FETCH": true, "FOR": true, "RETURNING": true, "ON": true,
	"AS": true, "ASC": true, "DESC": true, "NULLS": true, "USING": true, "SET": true, "JOIN": true, "LEFT": true, "RIGHT": true, "FULL": true,
	"INNER": true, "CROSS": true, "NATURAL": true, "DO": true, "VALUES": true,
}

// end returns the position at which the expression that begins with token i ends. If stop is true,
// an operator ends the expression too. Operators at the beginning of the expression do not count,
// because they are prefix operators.
func end(all []token, i int, stop bool) int {
	depth, begun := all[i].depth, false
	last := i
	for ; i < len(all); i++ {
		t := &all[i]
		if t.depth < depth {
			break
		}
		if t.depth == depth {
			if t.text == "," || t.text == ";" || t.isKeyword && endsExpression[t.text] && begun && !closes(t) {
				break
			}
			if t.isOperator() && begun && stop {
				break
			}
			begun = begun || !t.isOperator() && t.text != "NOT"
		}
		last = i
	}
	return all[last].end
}
