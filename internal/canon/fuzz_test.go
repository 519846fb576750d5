package canon_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/idem-go/idem/internal/canon"
)

// A document that Append accepts is valid for encoding/json, and has the same form in all
// spellings. A document that Append refuses is invalid for encoding/json, except for the additional
// rules of Append.
func FuzzAppend(f *testing.F) {
	for _, doc := range []string{
		`{"id":48211,"items":[{"sku":"A-100","price":19.90},{"sku":"B-7"}],"note":"leave at door"}`, `{"a":1,"a":2}`, `"\ud800"`, `"\ud83d\ude00"`, "\"\xff\"", "-0.0e+0", "1e1000000000000000", "12e999999999999999999999",
		` [ 1 , 2.50e-3, { "b" : null , "a" : [ true , false ] } ] `, `{"é":"\u00e9","\u0065\u0301":"\b\f\n\r\t\"\\\/"}`, "[[[[[[]]]]]]", "",
	} {
		f.Add([]byte(doc), uint64(1))
	}
	f.Fuzz(func(t *testing.T, doc []byte, seed uint64) {
		text, err := canon.Append(nil, doc, whole(t))
		valid := json.Valid(doc) && utf8.Valid(doc)
		if err != nil {
			if !errors.Is(err, canon.ErrDocument) || valid && !refusedBeyondRFC8259(err) {
				t.Fatalf("Append(%q): %v", doc, err)
			}
			return
		}
		if !valid {
			t.Fatalf("Append(%q) accepts invalid JSON", doc)
		}
		a := author{rand.New(rand.NewPCG(seed, 0))}
		for _, again := range [][]byte{compact(t, doc), indent(t, doc), remarshal(t, doc), a.write(nil, parse(t, doc))} {
			if form(t, again, whole(t)) != string(text) {
				t.Fatalf("forms differ:\n%q\n%q", doc, again)
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

func remarshal(t *testing.T, doc []byte) []byte {
	again, err := json.Marshal(decode(t, doc))
	if err != nil {
		t.Fatal(err)
	}
	return again
}
