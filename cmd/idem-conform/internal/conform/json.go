package conform

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// sameJSONValue reports whether two documents are JSON with the same value. The order of members,
// white space and the spelling of strings and numbers do not matter. Numbers are compared exactly.
func sameJSONValue(a, b []byte) bool {
	x, okX := decoded(a)
	y, okY := decoded(b)
	return okX && okY && equal(x, y)
}

func decoded(doc []byte) (value any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(doc))
	decoder.UseNumber()
	ok = json.Valid(doc) && decoder.Decode(&value) == nil
	return value, ok
}

// memberID returns the member id of a JSON object, or nil if there is none.
func memberID(doc []byte) any {
	value, _ := decoded(doc)
	object, _ := value.(map[string]any)
	return object["id"]
}

func equal(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		return ok && equalNumbers(string(x), string(y))
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, equal)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, equal)
	}
	return a == b
}

// equalNumbers compares two numbers exactly. A number with an exponent of more than three digits
// equals only a number with the same spelling, because computing its value could exhaust the
// memory.
func equalNumbers(a, b string) bool {
	if a == b {
		return true
	}
	for _, n := range []string{a, b} {
		if _, exponent, _ := strings.Cut(strings.ToLower(n), "e"); len(strings.TrimLeft(exponent, "+-")) > 3 {
			return false
		}
	}
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	return okX && okY && x.Cmp(y) == 0
}
