package keyheader

import (
	"errors"
	"strings"
	"testing"
)

func TestParse_ReadsBothForms(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		values []string
		key    string
		err    error
	}{
		{"bare", []string{"8e03978e-40d5-43dd-bc93-6894a57f9324"}, "8e03978e-40d5-43dd-bc93-6894a57f9324", nil},
		{"in quotes", []string{`"8e03978e-40d5-43dd-bc93-6894a57f9324"`}, "8e03978e-40d5-43dd-bc93-6894a57f9324", nil},
		{"bare, one character", []string{"k"}, "k", nil},
		{"bare, every character", []string{bareCharacters}, bareCharacters, nil},
		{"bare, surrounded", []string{" \tk\t "}, "k", nil},
		{"in quotes, surrounded", []string{" \t\"k\"\t "}, "k", nil},
		{"in quotes, a space", []string{`"a b"`}, "a b", nil},
		{"in quotes, spaces at its ends", []string{`" k "`}, " k ", nil},
		{"in quotes, a comma and a semicolon", []string{`"a,b;c"`}, "a,b;c", nil},
		{"escaped quotes", []string{`"\"k\""`}, `"k"`, nil},
		{"escaped backslashes", []string{`"\\\\"`}, `\\`, nil},
		{"escaped backslash before an escaped quote", []string{`"\\\""`}, `\"`, nil},
		{"long", []string{strings.Repeat("k", 1<<20)}, strings.Repeat("k", 1<<20), nil},

		{"none", nil, "", ErrMissing},
		{"two fields", []string{"k", "k"}, "", ErrSeveral},
		{"two fields, one empty", []string{"k", ""}, "", ErrSeveral},
		{"list of bare keys", []string{"a, b"}, "", ErrSeveral},
		{"list of bare keys, no space", []string{"a,b"}, "", ErrSeveral},
		{"list of strings", []string{`"a", "b"`}, "", ErrSeveral},
		{"list of strings, spaced out", []string{"\"a\" \t, \"b\""}, "", ErrSeveral},
		{"trailing comma", []string{"k,"}, "", ErrSeveral},

		{"empty", []string{""}, "", ErrMalformed},
		{"blank", []string{" \t "}, "", ErrMalformed},
		{"empty string", []string{`""`}, "", ErrMalformed},
		{"not closed", []string{`"k`}, "", ErrMalformed},
		{"not opened", []string{`k"`}, "", ErrMalformed},
		{"a quote alone", []string{`"`}, "", ErrMalformed},
		{"closed twice", []string{`"k""`}, "", ErrMalformed},
		{"string and more", []string{`"a"b`}, "", ErrMalformed},
		{"two strings", []string{`"a" "b"`}, "", ErrMalformed},
		{"escape at the end", []string{`"k\`}, "", ErrMalformed},
		{"escaped closing quote", []string{`"k\"`}, "", ErrMalformed},
		{"escape of a letter", []string{`"\k"`}, "", ErrMalformed},
		{"parameter", []string{`"k";a=1`}, "", ErrMalformed},
		{"parameter of a bare key", []string{`k;a=1`}, "", ErrMalformed},
		{"two bare words", []string{"a b"}, "", ErrMalformed},
		{"bare backslash", []string{`a\b`}, "", ErrMalformed},
		{"inner quote", []string{`a"b`}, "", ErrMalformed},
		{"inner tab", []string{"\"a\tb\""}, "", ErrMalformed},
		{"newline", []string{"a\nb"}, "", ErrMalformed},
		{"NUL", []string{"\x00"}, "", ErrMalformed},
		{"NUL in quotes", []string{"\"\x00\""}, "", ErrMalformed},
		{"DEL", []string{"k\x7f"}, "", ErrMalformed},
		{"DEL in quotes", []string{"\"k\x7f\""}, "", ErrMalformed},
		{"letter like another", []string{"\u043a"}, "", ErrMalformed},
		{"letter like another, in quotes", []string{"\"\u043a\""}, "", ErrMalformed},
		{"invalid UTF-8", []string{"k\xff"}, "", ErrMalformed},
		{"display string", []string{"%\"k\""}, "", ErrMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			key, err := Parse(test.values)
			if key != test.key || err != test.err {
				t.Errorf("Parse(%.99q) = %.99q, %v; want %.99q, %v", test.values, key, err, test.key, test.err)
			}
		})
	}
}

// bareCharacters are all characters of bare keys: printable ASCII except space and `",;\`.
const bareCharacters = "!#$%&'()*+-./0123456789:<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~"

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"k", `"k"`, ` "a b" `, `"\"\\"`, `"k";a`, "a,b", `"a", "b"`, "", `"`, `""`, "\x00", "\"\xff\"", `k\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := Parse([]string{value})
		if (key == "") != (err != nil) {
			t.Fatalf("Parse(%q) = %q, %v", value, key, err)
		}
		if err != nil {
			if !errors.Is(err, ErrSeveral) && !errors.Is(err, ErrMalformed) {
				t.Fatalf("Parse(%q): %v", value, err)
			}
			return
		}
		if i := strings.IndexFunc(key, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
			t.Errorf("Parse(%q) = %q: the character at %d is not printable ASCII", value, key, i)
		}
		if again, err := Parse([]string{quote(key)}); again != key || err != nil {
			t.Errorf("Parse(%q) = %q, and in quotes %q, %v", value, key, again, err)
		}
		if strings.ContainsAny(key, " \",;\\") {
			return // there is no bare form
		}
		if again, err := Parse([]string{key}); again != key || err != nil {
			t.Errorf("Parse(%q) = %q, and bare %q, %v", value, key, again, err)
		}
	})
}

// quote returns key in the quoted form.
func quote(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}
