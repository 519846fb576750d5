package canon_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A document consists of nil, bool, string, decimal, []any and object.
type (
	object []field // in any order
	field  struct {
		name  string
		value any
	}
	decimal struct {
		negative bool
		digits   string // "0", or without a leading 0
		exponent int64
	}
)

// children returns the members of an object, or the elements of an array named by their index.
func children(value any) []field {
	members, _ := value.(object)
	if array, ok := value.([]any); ok {
		for i, element := range array {
			members = append(members, field{strconv.Itoa(i), element})
		}
	}
	return members
}

// paths returns the paths to all parts of a value, as indexes of children.
func paths(value any, here []int) [][]int {
	all := [][]int{here}
	for i, c := range children(value) {
		all = append(all, paths(c.value, append(slices.Clip(here), i))...)
	}
	return all
}

// pointerTo returns the JSON pointer of the part at path, and a document that has only this part.
func pointerTo(value any, path []int) (pointer string, alone any) {
	if len(path) == 0 {
		return "", value
	}
	c := children(value)[path[0]]
	pointer, alone = pointerTo(c.value, path[1:])
	return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(c.name) + pointer, object{{c.name, alone}}
}

type removed struct{}

// edit returns a copy of value in which the part at path is changed, or removed if change returns
// removed{}.
func edit(value any, path []int, change func(any) any) any {
	if len(path) == 0 {
		return change(value)
	}
	i := path[0]
	switch v := value.(type) {
	case []any:
		v = slices.Clone(v)
		if v[i] = edit(v[i], path[1:], change); v[i] == any(removed{}) {
			v = slices.Delete(v, i, i+1)
		}
		return v
	case object:
		v = slices.Clone(v)
		if v[i].value = edit(v[i].value, path[1:], change); v[i].value == any(removed{}) {
			v = slices.Delete(v, i, i+1)
		}
		return v
	}
	panic("no part of a document")
}

func decode(t *testing.T, doc []byte) any {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// parse reads a document in the form that an author writes.
func parse(t *testing.T, doc []byte) any { return authored(decode(t, doc)) }

func authored(value any) any {
	switch v := value.(type) {
	case json.Number:
		mantissa, exponent, _ := strings.Cut(strings.ToLower(string(v)), "e")
		mantissa, negative := strings.CutPrefix(mantissa, "-")
		integer, fraction, _ := strings.Cut(mantissa, ".")
		digits := strings.TrimLeft(integer+fraction, "0")
		if digits == "" {
			return decimal{digits: "0"}
		}
		n, _ := strconv.ParseInt(exponent, 10, 64) // 0 without an exponent
		return decimal{negative, digits, n - int64(len(fraction))}
	case []any:
		for i := range v {
			v[i] = authored(v[i])
		}
	case map[string]any:
		var members object
		for _, name := range slices.Sorted(maps.Keys(v)) {
			members = append(members, field{name, authored(v[name])})
		}
		return members
	}
	return value
}
