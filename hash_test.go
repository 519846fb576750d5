package idem_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

var update = flag.Bool("update", false, "add missing hashes to testdata/hashes.json; those that are there never change")

const goldenHashes = "testdata/hashes.json"

// A hashVector is a list of byte strings, or documents that all say the same under the same options.
type hashVector struct {
	Name    string   `json:"name"`
	Parts   []string `json:"parts,omitempty"`
	Docs    []string `json:"docs,omitempty"`
	Only    []string `json:"only,omitempty"`
	Without []string `json:"without,omitempty"`
	Hash    string   `json:"hash"`
}

func (v hashVector) options() []idem.HashOption {
	var opts []idem.HashOption
	if len(v.Only) > 0 {
		opts = append(opts, idem.Only(v.Only...))
	}
	return append(opts, idem.Without(v.Without...))
}

func (v hashVector) hashes(t *testing.T) []string {
	if v.Docs == nil {
		var parts [][]byte
		for _, part := range v.Parts {
			parts = append(parts, []byte(part))
		}
		return []string{idem.HashBytes(parts...).String()}
	}
	var hashes []string
	for _, doc := range v.Docs {
		hashes = append(hashes, hashJSON(t, doc, v.options()...).String())
	}
	return hashes
}

func hashJSON(t *testing.T, doc string, opts ...idem.HashOption) idem.Hash {
	t.Helper()
	hash, err := idem.HashJSON([]byte(doc), opts...)
	if err != nil {
		t.Fatalf("HashJSON(%.200q): %v", doc, err)
	}
	return hash
}

// Databases hold hashes, so those in the golden file never change.
func TestHashesAreFrozen(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile(goldenHashes)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []hashVector
	if err := json.Unmarshal(golden, &vectors); err != nil {
		t.Fatal(err)
	}
	owner := map[string]string{}
	for i, v := range vectors {
		hashes := v.hashes(t)
		if *update && v.Hash == "" {
			vectors[i].Hash = hashes[0]
		}
		for j, hash := range hashes {
			if hash != vectors[i].Hash {
				t.Errorf("%s: hash %d is %s, want %s", v.Name, j, hash, vectors[i].Hash)
			}
		}
		if other, ok := owner[hashes[0]]; ok {
			t.Errorf("%s hashes like %s", v.Name, other)
		}
		owner[hashes[0]] = v.Name
	}
	if *update {
		writeVectors(t, vectors)
	}
}

func writeVectors(t *testing.T, vectors []hashVector) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "\t")
	if err := enc.Encode(vectors); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenHashes, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestHashJSONRefusesWithReasonAndOffset(t *testing.T) {
	t.Parallel()
	tests := []struct {
		doc  string
		opts []idem.HashOption
		want string
	}{
		{doc: "", want: "unexpected end at byte 0"},
		{doc: " \n", want: "unexpected end at byte 2"},
		{doc: "\ufeff{}", want: "expected a value at byte 0"},
		{doc: "nul", want: "expected a value at byte 0"},
		{doc: "True", want: "expected a value at byte 0"},
		{doc: "NaN", want: "expected a value at byte 0"},
		{doc: "'a'", want: "expected a value at byte 0"},
		{doc: "\x00", want: "expected a value at byte 0"},
		{doc: "\v1", want: "expected a value at byte 0"},
		{doc: "1 2", want: "data after the value at byte 2"},
		{doc: "nullx", want: "data after the value at byte 4"},
		{doc: "{}}", want: "data after the value at byte 2"},
		{doc: "1\x00", want: "data after the value at byte 1"},

		{doc: "[", want: "unexpected end at byte 1"},
		{doc: "[1", want: "unexpected end at byte 2"},
		{doc: "[1,]", want: "expected a value at byte 3"},
		{doc: "[,1]", want: "expected a value at byte 1"},
		{doc: "[1 2]", want: "expected ',' or ']' at byte 3"},
		{doc: "[1}", want: "expected ',' or ']' at byte 2"},
		{doc: "{", want: "unexpected end at byte 1"},
		{doc: "{1:2}", want: "expected a name at byte 1"},
		{doc: "{,}", want: "expected a name at byte 1"},
		{doc: `{"a"`, want: "unexpected end at byte 4"},
		{doc: `{"a" 1}`, want: "expected ':' at byte 5"},
		{doc: `{"a":}`, want: "expected a value at byte 5"},
		{doc: `{"a":1,}`, want: "expected a name at byte 7"},
		{doc: `{"a":1]`, want: "expected ',' or '}' at byte 6"},
		{doc: `{"a":1 "b":2}`, want: "expected ',' or '}' at byte 7"},
		{doc: strings.Repeat("[", 257), want: "nested too deep at byte 256"},
		{doc: strings.Repeat(`{"":`, 257), want: "nested too deep at byte 1024"},

		{doc: `{"a":1,"b":2,"a":1}`, want: "second member of one name at byte 13"},
		{doc: `{"a":1,"\u0061":1}`, want: "second member of one name at byte 7"},
		{doc: `{"é":1,"\u00E9":1}`, want: "second member of one name at byte 8"},
		{doc: `{"":1,"":1}`, want: "second member of one name at byte 6"},
		{doc: `[{"a":{"b":1,"b":1}}]`, want: "second member of one name at byte 13"},
		{doc: `{"a":1,"a":2}`, opts: []idem.HashOption{idem.Without("/a")}, want: "second member of one name at byte 7"},
		{doc: `{"a":1,"b":{"c":1,"c":1}}`, opts: []idem.HashOption{idem.Only("/a")}, want: "second member of one name at byte 18"},

		{doc: `"`, want: "unexpected end at byte 1"},
		{doc: `"a`, want: "unexpected end at byte 2"},
		{doc: `"\`, want: "invalid escape sequence at byte 1"},
		{doc: `"\'"`, want: "invalid escape sequence at byte 1"},
		{doc: `"\x"`, want: "invalid escape sequence at byte 1"},
		{doc: `"\U0061"`, want: "invalid escape sequence at byte 1"},
		{doc: `"\u12"`, want: "invalid escape sequence at byte 1"},
		{doc: `"\u123`, want: "invalid escape sequence at byte 1"},
		{doc: `"\u12_4"`, want: "invalid escape sequence at byte 1"},
		{doc: `"\u+123"`, want: "invalid escape sequence at byte 1"},
		{doc: `"a\ud800"`, want: "unpaired surrogate at byte 2"},
		{doc: `"a\uDFFFb"`, want: "unpaired surrogate at byte 2"},
		{doc: `"\ud83d\u0061"`, want: "unpaired surrogate at byte 1"},
		{doc: `"\ude00\ud83d"`, want: "unpaired surrogate at byte 1"},
		{doc: `"\ud83d\n"`, want: "unpaired surrogate at byte 1"},
		{doc: `"\ud83d\ude0`, want: "unpaired surrogate at byte 1"},
		{doc: "\"a\nb\"", want: "control character in a string at byte 2"},
		{doc: "\"\x00\"", want: "control character in a string at byte 1"},
		{doc: "\"\x1f\"", want: "control character in a string at byte 1"},
		{doc: "\"a\xff\"", want: "invalid UTF-8 at byte 2"},
		{doc: "\"\xc0\x80\"", want: "invalid UTF-8 at byte 1"},
		{doc: "\"\xed\xa0\x80\"", want: "invalid UTF-8 at byte 1"},
		{doc: "\"\xf4\x90\x80\x80\"", want: "invalid UTF-8 at byte 1"},
		{doc: "\"\xe2\x82", want: "invalid UTF-8 at byte 1"},
		{doc: "{\"\xff\":1}", want: "invalid UTF-8 at byte 2"},
		{doc: "[1,\xff]", want: "expected a value at byte 3"},

		{doc: "-", want: "unexpected end at byte 1"},
		{doc: "+1", want: "expected a value at byte 0"},
		{doc: ".5", want: "expected a value at byte 0"},
		{doc: "-a", want: "expected a value at byte 1"},
		{doc: "01", want: "number that begins with 0 at byte 0"},
		{doc: "[-00]", want: "number that begins with 0 at byte 1"},
		{doc: "1.", want: "unexpected end at byte 2"},
		{doc: "1.e5", want: "expected a digit at byte 2"},
		{doc: "1e", want: "unexpected end at byte 2"},
		{doc: "1e+-5", want: "expected a digit at byte 3"},
		{doc: "1e5.5", want: "data after the value at byte 3"},
		{doc: "0x10", want: "data after the value at byte 1"},
		{doc: "1_000", want: "data after the value at byte 1"},
		{doc: "[1e1000000000000001]", want: "number out of range at byte 1"},
		{doc: "-1e-1000000000000001", want: "number out of range at byte 0"},
		{doc: "10e1000000000000000", want: "number out of range at byte 0"},
		{doc: "0.1e-1000000000000000", want: "number out of range at byte 0"},
		{doc: "1e9223372036854775808", want: "number out of range at byte 0"},
		{doc: "1000e9223372036854775807", want: "number out of range at byte 0"},
		{doc: "0.001e-9223372036854775808", want: "number out of range at byte 0"},
		{doc: "1e" + strings.Repeat("9", 1000), want: "number out of range at byte 0"},

		{doc: "{}", opts: []idem.HashOption{idem.Only("/a")}, want: "nothing that Only selects at byte 0"},
		{doc: `{"b":{"a":1}}`, opts: []idem.HashOption{idem.Only("/a", "/b/c", "/b/a/0")}, want: "nothing that Only selects at byte 0"},
		{doc: `[1]`, opts: []idem.HashOption{idem.Only("/1", "/-", "/00", "/+0", "/0/0", "/")}, want: "nothing that Only selects at byte 0"},
	}
	for _, tt := range tests {
		hash, err := idem.HashJSON([]byte(tt.doc), tt.opts...)
		want := "idem: invalid JSON document: " + tt.want
		if !errors.Is(err, idem.ErrInvalidJSON) || err.Error() != want || hash != (idem.Hash{}) {
			t.Errorf("HashJSON(%.100q) = %v, %v; want the error %q", tt.doc, hash, err, want)
		}
	}
}

// The bytes that follow in the same array are not part of the document.
func TestEveryBeginningOfADocumentIsRefused(t *testing.T) {
	t.Parallel()
	doc := []byte(`{"a\u0061\n":[true,false,null,-1.5e+3,"\ud83d\ude00é"]}`)
	for i := range doc {
		if _, err := idem.HashJSON(doc[:i]); !errors.Is(err, idem.ErrInvalidJSON) {
			t.Errorf("HashJSON(%q): %v", doc[:i], err)
		}
	}
}

// Documents come from strangers and errors go to logs.
func TestErrorsNeverQuoteTheDocument(t *testing.T) {
	t.Parallel()
	const doc = `{"hunter2":"hunter2","a":[hunter2,"hunter2",{"hunter2":1,"hunter2":1e99hunter2}]}hunter2`
	for i := range doc {
		for _, fault := range []string{"", "\"", "}", "\\", "\xff", "1", ",", ":"} {
			_, err := idem.HashJSON([]byte(doc[:i] + fault + doc[i:]))
			if err == nil || strings.Contains(err.Error(), "unter") {
				t.Fatalf("%q at %d: %v", fault, i, err)
			}
		}
	}
}

func TestNestingUpToTheLimitIsHashed(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		strings.Repeat("[", 256) + strings.Repeat("]", 256),
		strings.Repeat(`{"":`, 256) + "1" + strings.Repeat("}", 256),
		"[" + strings.Repeat("[[]],", 1000) + "[]]", // wide, not deep
	} {
		hashJSON(t, doc)
	}
}

// Options that take the same from two documents, or nothing from one, leave nothing to tell them apart.
func TestSelectionsThatHashAlike(t *testing.T) {
	t.Parallel()
	type selection struct {
		doc  string
		opts []idem.HashOption
	}
	with := func(doc string, opts ...idem.HashOption) selection { return selection{doc, opts} }
	only, without := idem.Only, idem.Without
	const order = `{"amount":5,"items":[{"sku":"a","qty":1},{"sku":"b"}],"a/b":{"m~n":null,"":7},"ts":"12:00"}`
	tests := map[string][]selection{
		"the whole document": {
			with(order), with(order, only("")), with(order, without()), with(order, only("", "/amount")), with(order, without("/nothing/here")),
			with(order, idem.HashOption{}),
		},
		"without is as if absent": {
			with(order, without("/ts", "/items/0/qty")), with(order, without("/items/0/qty"), without("/ts", "/ts")),
			with(`{"items":[{"sku":"a"},{"sku":"b"}],"amount":5,"a/b":{"":7,"m~n":null}}`),
			with(order, without("/items/0/qty", "/ts"), only("")),
			with(order, without("/items/0/qty", "/ts", "/ts/of/nothing")),
		},
		"elements keep their index": {
			with(`[0,1,2,3]`, without("/0", "/2")), with(`[9,1,9,3]`, without("/2", "/0")), with(`[1,3]`),
		},
		"all taken out": {
			with(`{"a":1,"b":2}`, without("/a", "/b")), with(`{}`),
		},
		"all elements taken out": {
			with(`[[1,2]]`, without("/0/0", "/0/1")), with(`[[]]`),
		},
		"inside another": {
			with(order, without("/items", "/items/0")), with(order, without("/items/0", "/items/0/sku", "/items")), with(order, without("/items")),
		},
		"only": {
			with(order, only("/amount", "/items")), with(order, only("/items"), only("/amount")),
			with(order, only("/items/0", "/amount", "/items", "/items/0/sku", "/amount")),
			with(`{"items":[{"qty":1.0,"sku":"\u0061"},{"sku":"b"}],"amount":50e-1}`, only("/items", "/amount")),
		},
		"only with nothing there": {
			with(order, only("/amount")), with(order, only("/amount", "/coupon", "/amount/currency")), with(`{"amount":5}`, only("/amount")),
		},
		"escaped pointers": {
			with(order, only("/a~1b/m~0n", "/a~1b/")), with(`{"a/b":{"":7,"m~n":null}}`, only("/a~1b/", "/a~1b/m~0n")),
		},
		"names that need escapes": {
			with(`{"\"":1,"\\":2,"é":3,"\n":4,"x":5}`, only("/\"", "/\\", "/é", "/\n")),
			with(`{"\u0022":1,"\u005c":2,"\u00e9":3,"\u000A":4}`, only("/\"", "/\\", "/é", "/\n")),
		},
		"without in only": {
			with(order, only("/items"), without("/items/0/qty")), with(`{"items":[{"sku":"a"},{"sku":"b"}]}`, only("/items")),
			with(order, only("/items"), without("/items/0/qty", "/ts")),
		},
		"without in without in only": {
			with(order, only("/items", "/ts"), without("/items/0", "/items/0/sku")), with(order, without("/items/0/sku", "/items/0"), only("/ts", "/items")),
		},
	}
	owner := map[idem.Hash]string{}
	for name, group := range tests {
		want := hashJSON(t, group[0].doc, group[0].opts...)
		for i, s := range group {
			if got := hashJSON(t, s.doc, s.opts...); got != want {
				t.Errorf("%s: %d differs from 0", name, i)
			}
		}
		if other, ok := owner[want]; ok {
			t.Errorf("%q hashes like %q", name, other)
		}
		owner[want] = name
	}
}

func TestPointersAreCheckedWhateverTheDocument(t *testing.T) {
	t.Parallel()
	only, without := idem.Only, idem.Without
	tests := []struct {
		opts []idem.HashOption
		want string
	}{
		{[]idem.HashOption{only()}, "Only selects nothing"},
		{[]idem.HashOption{only("/b", "a")}, `"a" does not begin with /`},
		{[]idem.HashOption{without("a/b")}, `"a/b" does not begin with /`},
		{[]idem.HashOption{only("#/a")}, `"#/a" does not begin with /`},
		{[]idem.HashOption{only("/a~")}, `"/a~" has a ~ that is not ~0 or ~1`},
		{[]idem.HashOption{without("/~2")}, `"/~2" has a ~ that is not ~0 or ~1`},
		{[]idem.HashOption{only("/~~0")}, `"/~~0" has a ~ that is not ~0 or ~1`},
		{[]idem.HashOption{only("/\xff")}, `"/\xff" is not valid UTF-8`},
		{[]idem.HashOption{only("/a"), without("~")}, `"~" does not begin with /`},
		{[]idem.HashOption{without("")}, `Without "" leaves nothing of ""`},
		{[]idem.HashOption{only("/a"), without("")}, `Without "" leaves nothing of "/a"`},
		{[]idem.HashOption{only("/a"), without("/a")}, `Without "/a" leaves nothing of "/a"`},
		{[]idem.HashOption{without("/a"), only("/a/b/c", "/b")}, `Without "/a" leaves nothing of "/a/b/c"`},
		{[]idem.HashOption{without("/a", "/a/b"), only("/a/b/c")}, `Without "/a" leaves nothing of "/a/b/c"`},
	}
	for _, tt := range tests {
		for _, doc := range []string{`{"a":1,"b":2}`, "[", ""} {
			hash, err := idem.HashJSON([]byte(doc), tt.opts...)
			want := "idem: invalid JSON pointer: " + tt.want
			if !errors.Is(err, idem.ErrInvalidPointer) || err.Error() != want || hash != (idem.Hash{}) {
				t.Errorf("HashJSON(%q) = %v, %v; want the error %q", doc, hash, err, want)
			}
		}
	}
}

func TestOptionsAreReusable(t *testing.T) {
	t.Parallel()
	const doc = `{"z":1,"b":2,"a":{"c":3,"b":4}}`
	only, without := idem.Only("/z", "/a", "/b"), idem.Without("/z/y", "/a/c")
	want := hashJSON(t, `{"z":1,"b":2,"a":{"b":4}}`, only)
	t.Run("group", func(t *testing.T) {
		for range 4 {
			t.Run("goroutine", func(t *testing.T) {
				t.Parallel()
				for range 100 {
					if got := hashJSON(t, doc, without, only); got != want {
						t.Fatalf("hash %v, want %v", got, want)
					}
				}
			})
		}
	})
}

func TestHashJSONLeavesTheDocumentAlone(t *testing.T) {
	t.Parallel()
	const doc = `{"b":"\u0061","a":[1.0,{"d":1,"c":2}]}`
	got := []byte(doc)
	for _, opts := range [][]idem.HashOption{nil, {idem.Only("/a")}, {idem.Without("/a/0")}} {
		if _, err := idem.HashJSON(got, opts...); err != nil {
			t.Fatal(err)
		}
	}
	if string(got) != doc {
		t.Errorf("document is now %s", got)
	}
}

// A stranger chooses the shape of a document. The limit is far above what each takes, and far below what one of them
// takes if its cost grows with the square of its length.
func TestHostileDocumentsAreHashedInTime(t *testing.T) {
	const size, limit = 1 << 20, time.Second
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	members := func(format string) string {
		var s strings.Builder
		for i := 0; s.Len() < size; i++ {
			fmt.Fprintf(&s, format, (i*7919)%1000003) // out of order, none twice
		}
		return "{" + s.String() + `"":0}`
	}
	docs := map[string]string{
		"array":           "[" + fill("0,") + "0]",
		"arrays":          "[" + fill("[],") + "0]",
		"objects":         "[" + fill("{},") + "0]",
		"brackets":        fill("["),
		"members":         members(`"%d":0,`),
		"long names":      members(`"` + strings.Repeat("x", 1000) + `%d":0,`),
		"one name":        "{" + fill(`"a":0,`) + `"a":0}`,
		"deep and moved":  strings.Repeat(`{"b":`, 256) + `"` + fill("x") + `"` + strings.Repeat(`,"a":0}`, 256),
		"digits":          fill("7"),
		"zeros":           "1" + fill("0"),
		"fraction":        "0." + fill("0") + "1",
		"exponent":        "1e" + fill("9"),
		"exponent zeros":  "1e" + fill("0") + "1",
		"small exponent":  "[" + fill("1e-999999999999,") + "0]",
		"string":          `"` + fill("x") + `"`,
		"escapes":         `"` + fill(`\u001f`) + `"`,
		"surrogate pairs": `"` + fill(`\ud83d\ude00`) + `"`,
		"unclosed string": `"` + fill("é"),
		"white space":     fill(" "),
	}
	opts := []idem.HashOption{idem.Only("/0", "/1/a", "/524287", "/b"), idem.Without("/7", "/77", "/b/b", "/a/b/c")}
	for name, doc := range docs {
		for _, opts := range [][]idem.HashOption{nil, opts} {
			var took time.Duration
			for range 3 { // the machine may be busy
				start := time.Now()
				_, _ = idem.HashJSON([]byte(doc), opts...)
				if took = time.Since(start); took < limit {
					break
				}
			}
			t.Logf("%s: %v", name, took)
			if took >= limit {
				t.Errorf("%s: %v, want less than %v", name, took, limit)
			}
		}
	}
}

const orderDocument = `{"order_id":"ord_01HZX4","customer":{"id":48211,"email":"ada@example.com"},"items":[` +
	`{"sku":"A-100","qty":2,"price":19.90},{"sku":"B-7","qty":1,"price":5}],"currency":"EUR","note":"leave at door"}`

func BenchmarkHashBytes(b *testing.B) {
	doc := []byte(orderDocument)
	b.ReportAllocs()
	for b.Loop() {
		idem.HashBytes(doc)
	}
}

func BenchmarkHashJSON(b *testing.B) {
	doc := []byte(orderDocument)
	for name, opts := range map[string][]idem.HashOption{
		"whole":   nil,
		"only":    {idem.Only("/customer/id", "/items", "/currency")},
		"without": {idem.Without("/note", "/customer/email")},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := idem.HashJSON(doc, opts...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func ExampleHashJSON() {
	first, _ := idem.HashJSON([]byte(`{"amount": 10.50, "currency": "EUR"}`))
	retry, _ := idem.HashJSON([]byte(`{"currency":"EUR","amount":1050e-2}`))
	other, _ := idem.HashJSON([]byte(`{"amount": 10.51, "currency": "EUR"}`))
	fmt.Println(first == retry, first == other)

	_, err := idem.HashJSON([]byte(`{"amount": 10.50, "amount": 9999}`))
	fmt.Println(errors.Is(err, idem.ErrInvalidJSON), err)
	// Output:
	// true false
	// true idem: invalid JSON document: second member of one name at byte 18
}

// Parsing pointers takes longer than a small document, so keep the options.
var intent = idem.Only("/amount", "/to/iban")

func ExampleOnly() {
	first, _ := idem.HashJSON([]byte(`{"amount": 5, "to": {"iban": "DE02", "name": "Ada"}}`), intent)
	retry, _ := idem.HashJSON([]byte(`{"amount": 5, "to": {"iban": "DE02", "name": "Ada L."}}`), intent)
	other, _ := idem.HashJSON([]byte(`{"amount": 5, "to": {"iban": "FR76", "name": "Ada"}}`), intent)
	fmt.Println(first == retry, first == other)

	_, err := idem.HashJSON([]byte(`{"name": "Ada"}`), intent)
	fmt.Println(err)
	// Output:
	// true false
	// idem: invalid JSON document: nothing that Only selects at byte 0
}

func ExampleWithout() {
	volatile := idem.Without("/sent_at", "/meta/trace")
	first, _ := idem.HashJSON([]byte(`{"amount": 5, "sent_at": "12:00:00", "meta": {"trace": "a1"}}`), volatile)
	retry, _ := idem.HashJSON([]byte(`{"amount": 5, "sent_at": "12:00:07", "meta": {}}`), volatile)
	other, _ := idem.HashJSON([]byte(`{"amount": 6, "sent_at": "12:00:00", "meta": {"trace": "a1"}}`), volatile)
	fmt.Println(first == retry, first == other)
	// Output: true false
}
