package idem_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/idem-go/idem"
)

// A document is made of nil, bool, string, decimal, []any and object.
type (
	object []field // in no order
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

// An author makes up documents, and writes one in many ways.
type author struct{ *rand.Rand }

func newAuthor(t *testing.T) author {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return author{rand.New(rand.NewPCG(seed, 0))}
}

func (a author) chance(n int) bool { return a.IntN(n) == 0 }

func (a author) letters(from string, most int) string {
	runes := []rune(from)
	var s strings.Builder
	for range a.IntN(most + 1) {
		s.WriteRune(runes[a.IntN(len(runes))])
	}
	return s.String()
}

func (a author) document(depth int) any {
	switch kind := a.IntN(8); {
	case kind == 0:
		return nil
	case kind == 1:
		return a.chance(2)
	case kind == 2:
		return decimal{digits: "0"}
	case kind == 3:
		return decimal{a.chance(2), strconv.Itoa(1+a.IntN(9)) + a.letters("0123456789", 20), int64(a.IntN(60) - 30)}
	case kind == 4 || depth == 0:
		return a.letters("ab/~\"\\\n\x00\x1f\x7fé€\u2028\ufffd😀", 6)
	case kind == 5:
		array := make([]any, a.IntN(5))
		for i := range array {
			array[i] = a.document(depth - 1)
		}
		return array
	default:
		members := make(object, a.IntN(5))
		for i := range members {
			members[i] = field{a.letters("0/~a\"\\\x00é😀", 3) + strconv.Itoa(i), a.document(depth - 1)}
		}
		return members
	}
}

// write appends one of the many spellings of a value.
func (a author) write(dst []byte, value any) []byte {
	dst = a.writeSpace(dst)
	switch v := value.(type) {
	case nil:
		dst = append(dst, "null"...)
	case bool:
		dst = strconv.AppendBool(dst, v)
	case string:
		dst = a.writeString(dst, v)
	case decimal:
		dst = a.writeNumber(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, element := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = a.write(dst, element)
		}
		dst = append(a.writeSpace(dst), ']')
	case object:
		dst = append(dst, '{')
		for i, j := range a.Perm(len(v)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = a.writeString(a.writeSpace(dst), v[j].name)
			dst = a.write(append(a.writeSpace(dst), ':'), v[j].value)
		}
		dst = append(a.writeSpace(dst), '}')
	}
	return a.writeSpace(dst)
}

func (a author) writeSpace(dst []byte) []byte {
	if !a.chance(3) {
		return dst
	}
	return append(dst, a.letters(" \t\r\n", 3)...)
}

func (a author) writeString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		short := strings.IndexRune("\"\\/\b\f\n\r\t", r)
		switch {
		case short >= 0 && a.chance(2):
			dst = append(dst, '\\', `"\/bfnrt`[short])
		case r < ' ' || r == '"' || r == '\\' || a.chance(3):
			for _, unit := range utf16.AppendRune(nil, r) {
				dst = fmt.Appendf(dst, [2]string{`\u%04x`, `\u%04X`}[a.IntN(2)], unit)
			}
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

func (a author) writeNumber(dst []byte, d decimal) []byte {
	if d.negative || d.digits == "0" && a.chance(2) {
		dst = append(dst, '-')
	}
	zeros := strings.Repeat("0", a.IntN(4))
	if d.digits == "0" { // whose zeros come after the point only
		dst = append(dst, '0')
		if zeros != "" {
			dst = append(append(dst, '.'), zeros...)
		}
		return a.writeExponent(dst, int64(a.IntN(100)-50))
	}
	digits, exponent := d.digits+zeros, d.exponent-int64(len(zeros))
	point := a.IntN(len(digits) + 1)
	integer, fraction := digits[:point], digits[point:]
	if integer == "" {
		integer = "0"
	}
	dst = append(dst, integer...)
	if fraction != "" {
		dst = append(append(dst, '.'), fraction...)
	}
	return a.writeExponent(dst, exponent+int64(len(fraction)))
}

func (a author) writeExponent(dst []byte, exponent int64) []byte {
	if exponent == 0 && a.chance(2) {
		return dst
	}
	dst = append(dst, "eE"[a.IntN(2)])
	switch {
	case exponent < 0:
		dst, exponent = append(dst, '-'), -exponent
	case a.chance(2):
		dst = append(dst, '+')
	}
	return strconv.AppendInt(append(dst, a.letters("0", 3)...), exponent, 10)
}

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

// paths returns the way to every part of a value, as the indexes of children.
func paths(value any, here []int) [][]int {
	all := [][]int{here}
	for i, c := range children(value) {
		all = append(all, paths(c.value, append(slices.Clip(here), i))...)
	}
	return all
}

// pointerTo returns the JSON pointer of the part at path, and a document that has this part there and nothing else.
func pointerTo(value any, path []int) (pointer string, alone any) {
	if len(path) == 0 {
		return "", value
	}
	c := children(value)[path[0]]
	pointer, alone = pointerTo(c.value, path[1:])
	return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(c.name) + pointer, object{{c.name, alone}}
}

type removed struct{}

// edit returns a copy of value with the part at path changed, or taken out if change returns removed{}.
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

// other returns a value that differs as little as can be.
func (a author) other(value any) any {
	switch v := value.(type) {
	case nil:
		return a.chance(2)
	case bool:
		if a.chance(2) {
			return nil
		}
		return !v
	case string:
		return v + a.letters("a\x00\u0301 ", 2) + "b"
	case decimal:
		switch {
		case a.chance(4):
			return string(a.writeNumber(nil, v))
		case v.digits == "0":
			return decimal{a.chance(2), "1", int64(a.IntN(800) - 400)}
		case a.chance(3):
			v.negative = !v.negative
		case a.chance(2):
			v.exponent += int64(1 - 2*a.IntN(2))
		default:
			v.digits, v.exponent = v.digits+strings.Repeat("0", 20)+"1", v.exponent-21
		}
		return v
	case []any:
		return append(slices.Clone(v), nil)
	case object:
		return append(slices.Clone(v), field{"new", nil})
	}
	panic("no part of a document")
}

func TestSpellingDoesNotMatterAndAnyPartDoes(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	for range 2000 {
		value := a.document(4)
		doc := a.write(nil, value)
		want := hashJSON(t, string(doc))
		again := a.write(nil, value)
		if hashJSON(t, string(again)) != want {
			t.Fatalf("hashes differ:\n%s\n%s", doc, again)
		}
		all := paths(value, nil)
		changed := a.write(nil, edit(value, all[a.IntN(len(all))], a.other))
		if hashJSON(t, string(changed)) == want {
			t.Fatalf("hashes are equal:\n%s\n%s", doc, changed)
		}
	}
}

func TestPointersSelectAnyPart(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	for range 2000 {
		value := a.document(4)
		all := paths(value, nil)
		path := all[a.IntN(len(all))]
		pointer, alone := pointerTo(value, path)
		doc, single := a.write(nil, value), a.write(nil, alone)
		only := hashJSON(t, string(doc), idem.Only(pointer))
		if hashJSON(t, string(single), idem.Only(pointer)) != only {
			t.Fatalf("with only %q, hashes differ:\n%s\n%s", pointer, doc, single)
		}
		changed := a.write(nil, edit(value, path, a.other))
		if hashJSON(t, string(changed), idem.Only(pointer)) == only {
			t.Fatalf("with only %q, hashes are equal:\n%s\n%s", pointer, doc, changed)
		}
		if pointer == "" {
			continue
		}
		rest := a.write(nil, edit(value, path, func(any) any { return removed{} }))
		if hashJSON(t, string(doc), idem.Without(pointer)) != hashJSON(t, string(rest)) {
			t.Fatalf("without %q, hashes differ:\n%s\n%s", pointer, doc, rest)
		}
	}
}

// Two numbers have one hash if and only if they are one rational number.
func TestNumbersAgreeWithBigRat(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	hashes, values := map[string]idem.Hash{}, map[idem.Hash]string{}
	const count = 20000
	for range count {
		number := a.letters("-", 1) + []string{"0", "1", "9", "10", "90", "99", "100", "190"}[a.IntN(8)]
		if fraction := a.letters("019", 4); fraction != "" {
			number += "." + fraction
		}
		number = string(a.writeExponent([]byte(number), int64(a.IntN(12)-6)))
		rat, ok := new(big.Rat).SetString(number)
		if !ok {
			t.Fatalf("%q is no number", number)
		}
		value, hash := rat.RatString(), hashJSON(t, number)
		if other, ok := hashes[value]; ok && other != hash {
			t.Fatalf("%s has two hashes, one of them as %s", value, number)
		}
		if other, ok := values[hash]; ok && other != value {
			t.Fatalf("%s and %s have one hash", other, value)
		}
		hashes[value], values[hash] = hash, value
	}
	if n := len(hashes); n < 100 || n > count/2 {
		t.Errorf("%d numbers out of %d spellings", n, count)
	}
}

// What HashJSON accepts, encoding/json reads, and however that or an author writes it again, it has the same hash. What
// HashJSON refuses, encoding/json refuses too, but for the rules that only HashJSON has.
func FuzzHashJSON(f *testing.F) {
	for _, doc := range []string{
		orderDocument, `{"a":1,"a":2}`, `"\ud800"`, `"\ud83d\ude00"`, "\"\xff\"", "-0.0e+0", "1e1000000000000000", "12e999999999999999999999",
		` [ 1 , 2.50e-3, { "b" : null , "a" : [ true , false ] } ] `, `{"é":"\u00e9","\u0065\u0301":"\b\f\n\r\t\"\\\/"}`, "[[[[[[]]]]]]", "",
	} {
		f.Add([]byte(doc), uint64(1))
	}
	f.Fuzz(func(t *testing.T, doc []byte, seed uint64) {
		want, err := idem.HashJSON(doc)
		valid := json.Valid(doc) && utf8.Valid(doc)
		if err != nil {
			if !errors.Is(err, idem.ErrInvalidJSON) || valid && !refusedBeyondRFC8259(err) {
				t.Fatalf("HashJSON(%q): %v", doc, err)
			}
			return
		}
		if !valid {
			t.Fatalf("HashJSON(%q) accepts what is not JSON", doc)
		}
		a := author{rand.New(rand.NewPCG(seed, 0))}
		for _, again := range [][]byte{compact(t, doc), indent(t, doc), remarshal(t, doc), a.write(nil, parse(t, doc))} {
			if hashJSON(t, string(again)) != want {
				t.Fatalf("hashes differ:\n%q\n%q", doc, again)
			}
		}
	})
}

func refusedBeyondRFC8259(err error) bool {
	return slices.ContainsFunc([]string{"second member of one name", "unpaired surrogate", "nested too deep", "number out of range"},
		func(reason string) bool { return strings.Contains(err.Error(), reason) })
}

func compact(t *testing.T, doc []byte) []byte {
	var again bytes.Buffer
	if err := json.Compact(&again, doc); err != nil {
		t.Fatal(err)
	}
	return again.Bytes()
}

func indent(t *testing.T, doc []byte) []byte {
	var again bytes.Buffer
	if err := json.Indent(&again, doc, "\t", " "); err != nil {
		t.Fatal(err)
	}
	return again.Bytes()
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

func remarshal(t *testing.T, doc []byte) []byte {
	again, err := json.Marshal(decode(t, doc))
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// parse reads a document for an author to write.
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
		n, _ := strconv.ParseInt(exponent, 10, 64) // none is 0
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
