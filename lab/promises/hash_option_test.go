package promises_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/idem-go/idem"
)

// Options that select the same from two documents, or nothing from one, give both the same hash.
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
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 100 {
				if got, err := idem.HashJSON([]byte(doc), without, only); err != nil || got != want {
					t.Errorf("hash %v, %v, want %v", got, err, want)
				}
			}
		})
	}
	callers.Wait()
}

// Parsing pointers takes longer than hashing a small document, so programs should keep the options.
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
