package webtest

import (
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"github.com/idem-go/idem/internal/keyheader"
)

// FuzzKeyHeaderAgainstHTTPSFV compares the parser with another parser of RFC 9651. Both agree on
// everything that begins with a quote, except for parameters and the empty string, which keyheader
// refuses on purpose.
func FuzzKeyHeaderAgainstHTTPSFV(f *testing.F) {
	for _, seed := range []string{
		"k", `"k"`, ` "a b" `, "\t\"k\"\t", `"\"\\"`, `"k\"`, `"\k"`, `"k";a=1`, `"k" ;a`, `"k"; a=?1;b="\""`, `"a", "b"`, `"a","b"`, `"a" "b"`,
		"a, b", `"`, `""`, `"";a`, "\"\x00\"", "\"\x7f\"", "\"\xff\"", "\"\u00e9\"", `%"k"`, ":aw==:", "?1", "@1", "12.5", "*k/a:b", `k"`, "k;a=1",
		`"8e03978e-40d5-43dd-bc93-6894a57f9324"`, "8e03978e-40d5-43dd-bc93-6894a57f9324",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := keyheader.Parse([]string{value})
		if err == nil {
			agreeOnSpelling(t, key)
		}
		trimmed := strings.Trim(value, " \t") // HTTP removes this space before parsing
		if !strings.HasPrefix(trimmed, `"`) {
			if err == nil && key != trimmed {
				t.Errorf("the bare key %q was read as %q", value, key)
			}
			return
		}
		item, errSFV := httpsfv.UnmarshalItem([]string{trimmed})
		want, _ := item.Value.(string)
		wanted := errSFV == nil && want != "" && len(item.Params.Names()) == 0
		if (err == nil) != wanted || wanted && key != want {
			t.Errorf("%q was read as %q, %v; httpsfv reads %q, %v", value, key, err, want, errSFV)
		}
	})
}

// agreeOnSpelling fails the test unless the key in the form of httpsfv is parsed to the same key.
func agreeOnSpelling(t *testing.T, key string) {
	t.Helper()
	spelled, err := httpsfv.Marshal(httpsfv.NewItem(key))
	if err != nil {
		t.Errorf("httpsfv cannot spell the key %q: %v", key, err)
		return
	}
	if again, err := keyheader.Parse([]string{spelled}); again != key || err != nil {
		t.Errorf("httpsfv spells the key %q as %s, which is read as %q, %v", key, spelled, again, err)
	}
}
