package display_test

import (
	"strings"
	"testing"

	"github.com/idem-go/idem/internal/display"
)

func TestKey_ShowsFirstCharactersAndLength(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ key, want string }{
		{"", "…(0)"},
		{"a", "a…(1)"},
		{"ab", "a…(2)"},
		{"abc", "a…(3)"},
		{"abcd", "ab…(4)"},
		{"abcdefg", "abc…(7)"},
		{"abcdefgh", "abcd…(8)"},
		{"7f3c9a52-0d1e-4b6f-9a52-0d1e4b6f7f3c", "7f3c…(36)"},
		{"日本語の鍵は日本語です", "日本語の…(33)"},
		{"日本語", "日…(9)"},
		{"\x1b[2J-0123456789-", `\x1b[2J…(16)`},
		{"\u202eab-0123456789-", `\u202eab-…(17)`},
		{"\xff\xfe\xfd\xfc0123456789ab", `\xff\xfe\xfd\xfc…(16)`},
		{strings.Repeat("\x80", 3), `\x80…(3)`},
	} {
		if got := display.Key(test.key); got != test.want {
			t.Errorf("Key(%q) = %s, want %s", test.key, got, test.want)
		}
	}
}

func TestPrintable_EscapesControlCharacters(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"", ""},
		{"order 17: 日本語 é", "order 17: 日本語 é"},
		{"\x1b[2J", `\x1b[2J`},
		{"a\nb\tc\x00", `a\nb\tc\x00`},
		{"\u202eabc", `\u202eabc`},
		{"\xffabc", `\xffabc`},
	} {
		if got := display.Printable(test.text); got != test.want {
			t.Errorf("Printable(%q) = %s, want %s", test.text, got, test.want)
		}
	}
}

func TestStorable_TruncatesWhatItHasReplaced(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                     "",
		"twelve bytes":         "twelve bytes",
		"thirteen byte":        "thirteen byt",
		"\x00\x00\x00\x00\x00": "\uFFFD\uFFFD\uFFFD\uFFFD",
		"\xff":                 "\uFFFD",
		"elevenbytesé":         "elevenbytes",
	} {
		if got := display.Storable(text, 12); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
