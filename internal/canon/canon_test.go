package canon_test

import (
	"math/big"
	"testing"

	"github.com/idem-go/idem/internal/canon"
)

func selection(t *testing.T, only, without []string) canon.Selection {
	t.Helper()
	var parsed [2][]canon.Pointer
	for i, texts := range [][]string{only, without} {
		var err error
		if parsed[i], err = canon.ParsePointers(texts); err != nil {
			t.Fatal(err)
		}
	}
	selected, err := canon.Select(parsed[0], parsed[1])
	if err != nil {
		t.Fatal(err)
	}
	return selected
}

func whole(t *testing.T) canon.Selection { return selection(t, nil, nil) }

func only(t *testing.T, pointers ...string) canon.Selection { return selection(t, pointers, nil) }

func without(t *testing.T, pointers ...string) canon.Selection { return selection(t, nil, pointers) }

// form returns the canonical form of a document.
func form[Text string | []byte](t *testing.T, doc Text, selected canon.Selection) string {
	t.Helper()
	text, err := canon.Append(nil, []byte(doc), selected)
	if err != nil {
		t.Fatalf("Append(%.200q): %v", doc, err)
	}
	return string(text)
}

func TestAppend_FormIsFrozen(t *testing.T) {
	t.Parallel()
	tests := []struct {
		doc           string
		only, without []string
		want          string
	}{
		{doc: ` null `, want: `{"":null}`},
		{doc: `{ "b" : [ ] , "a" : { } }`, want: `{"":{"a":{},"b":[]}}`},
		{doc: `[true, "\u00e9\/\n\u001F\u007f\"\\", "é /"]`, want: `{"":[true,"é/\u000a\u001f` + "\x7f" + `\"\\","é /"]}`},
		{doc: `[0, -0, 0e5, 0.00, 12, 1.20e1, 1000, -1.5, 9007199254740993]`, want: `{"":[0,0,0,0,12,12,1e3,-15e-1,9007199254740993]}`},
		{doc: `{"é":1,"z":2,"\n":3,"":4,"\"":5,"😀":6,"\uffff":7}`, want: `{"":{"":4,"\"":5,"\u000a":3,"z":2,"é":1,"` + "\uffff" + `":7,"😀":6}}`},
		{doc: `{"a":[1,{"b":2}],"c":3}`, only: []string{"/c", "/a/1", "/d"}, want: `{"/a/1":{"b":2},"/c":3}`},
		{doc: `{"a":[1,{"b":2}],"c":3}`, without: []string{"/a/0", "/a/1/b"}, want: `{"":{"a":[{}],"c":3}}`},
		{doc: `{"a":[1,{"b":2}],"c":3}`, only: []string{"/a"}, without: []string{"/a/1"}, want: `{"/a":[1]}`},
		{doc: `{"a/b":{"m~n":null}}`, only: []string{"/a~1b/m~0n"}, want: `{"/a~1b/m~0n":null}`},
	}
	for _, tt := range tests {
		if got := form(t, tt.doc, selection(t, tt.only, tt.without)); got != tt.want {
			t.Errorf("%s: only %q, without %q:\ngot  %s\nwant %s", tt.doc, tt.only, tt.without, got, tt.want)
		}
	}
}

func TestAppend_KeepsBuffer(t *testing.T) {
	t.Parallel()
	const tag = "tag\n"
	for _, room := range []int{0, 100} {
		dst := append(make([]byte, 0, len(tag)+room), tag...)
		got, err := canon.Append(dst, []byte(`{"b":1,"a":2}`), only(t, "/b", "/a"))
		if want := tag + `{"/a":2,"/b":1}`; err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

func TestAppend_IgnoresSpellingOnly(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	for range 500 {
		value := a.document(4)
		doc := a.write(nil, value)
		want := form(t, doc, whole(t))
		again := a.write(nil, value)
		if form(t, again, whole(t)) != want {
			t.Fatalf("forms differ:\n%s\n%s", doc, again)
		}
		all := paths(value, nil)
		changed := a.write(nil, edit(value, all[a.IntN(len(all))], a.other))
		if form(t, changed, whole(t)) == want {
			t.Fatalf("forms are equal:\n%s\n%s", doc, changed)
		}
	}
}

func TestAppend_SelectsByPointer(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	for range 500 {
		value := a.document(4)
		all := paths(value, nil)
		path := all[a.IntN(len(all))]
		pointer, alone := pointerTo(value, path)
		doc, single := a.write(nil, value), a.write(nil, alone)
		want := form(t, doc, only(t, pointer))
		if form(t, single, only(t, pointer)) != want {
			t.Fatalf("with only %q, forms differ:\n%s\n%s", pointer, doc, single)
		}
		changed := a.write(nil, edit(value, path, a.other))
		if form(t, changed, only(t, pointer)) == want {
			t.Fatalf("with only %q, forms are equal:\n%s\n%s", pointer, doc, changed)
		}
		if pointer == "" {
			continue
		}
		rest := a.write(nil, edit(value, path, func(any) any { return removed{} }))
		if form(t, doc, without(t, pointer)) != form(t, rest, whole(t)) {
			t.Fatalf("without %q, forms differ:\n%s\n%s", pointer, doc, rest)
		}
	}
}

// Two numbers have the same form if and only if they are the same rational number.
func TestAppend_NumbersAgreeWithBigRat(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	forms, values := map[string]string{}, map[string]string{}
	const count = 5000
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
		value, text := rat.RatString(), form(t, number, whole(t))
		if other, ok := forms[value]; ok && other != text {
			t.Fatalf("%s has two forms, one of them as %s", value, number)
		}
		if other, ok := values[text]; ok && other != value {
			t.Fatalf("%s and %s have one form", other, value)
		}
		forms[value], values[text] = text, value
	}
	if n := len(forms); n < 100 || n > count/2 {
		t.Errorf("%d numbers out of %d spellings", n, count)
	}
}
