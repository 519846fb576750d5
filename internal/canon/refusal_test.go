package canon_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/idem-go/idem/internal/canon"
)

func TestAppend_RefusalHasReasonAndOffset(t *testing.T) {
	t.Parallel()
	tests := []struct {
		doc           string
		only, without []string
		want          string
	}{
		{doc: "", want: "unexpected end at byte 0"},
		{doc: " \n", want: "unexpected end at byte 2"},
		{doc: "\ufeff{}", want: "expected a value at byte 0"},
		{doc: "nul", want: "expected a value at byte 0"},
		{doc: "\x00", want: "expected a value at byte 0"},
		{doc: "1 2", want: "data after the value at byte 2"},
		{doc: "{}}", want: "data after the value at byte 2"},

		{doc: "[", want: "unexpected end at byte 1"},
		{doc: "[1", want: "unexpected end at byte 2"},
		{doc: "[1,]", want: "expected a value at byte 3"},
		{doc: "[,1]", want: "expected a value at byte 1"},
		{doc: "[1 2]", want: "expected ',' or ']' at byte 3"},
		{doc: "{", want: "unexpected end at byte 1"},
		{doc: "{1:2}", want: "expected a name at byte 1"},
		{doc: `{"a" 1}`, want: "expected ':' at byte 5"},
		{doc: `{"a":}`, want: "expected a value at byte 5"},
		{doc: `{"a":1,}`, want: "expected a name at byte 7"},
		{doc: `{"a":1 "b":2}`, want: "expected ',' or '}' at byte 7"},
		{doc: strings.Repeat("[", 257), want: "nested too deep at byte 256"},
		{doc: strings.Repeat(`{"":`, 257), want: "nested too deep at byte 1024"},

		{doc: `{"a":1,"b":2,"a":1}`, want: "second member of one name at byte 13"},
		{doc: `{"a":1,"\u0061":1}`, want: "second member of one name at byte 7"},
		{doc: `{"é":1,"\u00E9":1}`, want: "second member of one name at byte 8"},
		{doc: `[{"a":{"b":1,"b":1}}]`, want: "second member of one name at byte 13"},
		{doc: `{"a":1,"a":2}`, without: []string{"/a"}, want: "second member of one name at byte 7"},
		{doc: `{"a":1,"b":{"c":1,"c":1}}`, only: []string{"/a"}, want: "second member of one name at byte 18"},

		{doc: `"`, want: "unexpected end at byte 1"},
		{doc: `"a`, want: "unexpected end at byte 2"},
		{doc: `"\`, want: "invalid escape sequence at byte 1"},
		{doc: `"\x"`, want: "invalid escape sequence at byte 1"},
		{doc: `"\u123`, want: "invalid escape sequence at byte 1"},
		{doc: `"\u+123"`, want: "invalid escape sequence at byte 1"},
		{doc: `"a\ud800"`, want: "unpaired surrogate at byte 2"},
		{doc: `"a\uDFFFb"`, want: "unpaired surrogate at byte 2"},
		{doc: `"\ud83d\u0061"`, want: "unpaired surrogate at byte 1"},
		{doc: `"\ud83d\n"`, want: "unpaired surrogate at byte 1"},
		{doc: `"\ud83d\ude0`, want: "unpaired surrogate at byte 1"},
		{doc: "\"a\nb\"", want: "control character in a string at byte 2"},
		{doc: "\"\x1f\"", want: "control character in a string at byte 1"},
		{doc: "\"a\xff\"", want: "invalid UTF-8 at byte 2"},
		{doc: "\"\xed\xa0\x80\"", want: "invalid UTF-8 at byte 1"},
		{doc: "\"\xe2\x82", want: "invalid UTF-8 at byte 1"},
		{doc: "{\"\xff\":1}", want: "invalid UTF-8 at byte 2"},
		{doc: "[1,\xff]", want: "expected a value at byte 3"},

		{doc: "-", want: "unexpected end at byte 1"},
		{doc: "+1", want: "expected a value at byte 0"},
		{doc: ".5", want: "expected a value at byte 0"},
		{doc: "01", want: "number that begins with 0 at byte 0"},
		{doc: "1.", want: "unexpected end at byte 2"},
		{doc: "1e", want: "unexpected end at byte 2"},
		{doc: "1e+-5", want: "expected a digit at byte 3"},
		{doc: "1_000", want: "data after the value at byte 1"},
		{doc: "[1e1000000000000001]", want: "number out of range at byte 1"},
		{doc: "10e1000000000000000", want: "number out of range at byte 0"},
		{doc: "1e9223372036854775808", want: "number out of range at byte 0"},
		{doc: "1000e9223372036854775807", want: "number out of range at byte 0"},
		{doc: "1e" + strings.Repeat("9", 1000), want: "number out of range at byte 0"},

		{doc: "{}", only: []string{"/a"}, want: "nothing that Only selects at byte 0"},
		{doc: `{"b":{"a":1}}`, only: []string{"/a", "/b/c", "/b/a/0"}, want: "nothing that Only selects at byte 0"},
		{doc: `[1]`, only: []string{"/1", "/-", "/00", "/+0", "/0/0", "/"}, want: "nothing that Only selects at byte 0"},
	}
	for _, tt := range tests {
		text, err := canon.Append(nil, []byte(tt.doc), selection(t, tt.only, tt.without))
		want := "idem: invalid JSON document: " + tt.want
		if !errors.Is(err, canon.ErrDocument) || err.Error() != want || text != nil {
			t.Errorf("Append(%.100q) = %q, %v; want the error %q", tt.doc, text, err, want)
		}
	}
}

// The bytes after the prefix are in the same array but are not part of the document.
func TestAppend_RefusesEveryPrefix(t *testing.T) {
	t.Parallel()
	doc := []byte(`{"a\u0061\n":[true,false,null,-1.5e+3,"\ud83d\ude00é"]}`)
	for i := range doc {
		if _, err := canon.Append(nil, doc[:i], whole(t)); !errors.Is(err, canon.ErrDocument) {
			t.Errorf("Append(%q): %v", doc[:i], err)
		}
	}
}

// Documents come from clients, and errors are logged.
func TestAppend_ErrorDoesNotQuoteDocument(t *testing.T) {
	t.Parallel()
	const doc = `{"hunter2":"hunter2","a":[hunter2,"hunter2",{"hunter2":1,"hunter2":1e99hunter2}]}hunter2`
	for i := range doc {
		for _, fault := range []string{"", "\"", "}", "\\", "\xff", "1", ",", ":"} {
			_, err := canon.Append(nil, []byte(doc[:i]+fault+doc[i:]), whole(t))
			if err == nil || strings.Contains(err.Error(), "unter") {
				t.Fatalf("%q at %d: %v", fault, i, err)
			}
		}
	}
}

func TestAppend_ReadsNestingUpToLimit(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		strings.Repeat("[", 256) + strings.Repeat("]", 256),
		strings.Repeat(`{"":`, 256) + "1" + strings.Repeat("}", 256),
		"[" + strings.Repeat("[[]],", 1000) + "[]]", // wide, not deep
	} {
		form(t, doc, whole(t))
	}
}
