package promises_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem"
)

// Databases store scopes, so these must never change.
func TestScopeIsReadableAndFrozen(t *testing.T) {
	t.Parallel()
	tests := []struct {
		parts []string
		want  string
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"", ""}, "/"},
		{[]string{"tenant-1"}, "tenant-1"},
		{[]string{"tenant-1", "POST /orders"}, "tenant-1/POST %2Forders"},
		{[]string{"a", "b/c"}, "a/b%2Fc"},
		{[]string{"a/b", "c"}, "a%2Fb/c"},
		{[]string{"a/b/c"}, "a%2Fb%2Fc"},
		{[]string{"a%2Fb", "c"}, "a%252Fb/c"},
		{[]string{"100%", "größe", "~\\ \"?"}, "100%25/größe/~\\ \"?"},
	}
	for _, tt := range tests {
		if got := idem.Scope(tt.parts...); got != tt.want {
			t.Errorf("Scope(%q) = %q, want %q", tt.parts, got, tt.want)
		}
	}
}

// FuzzScope recovers the parts from the scope. A function that can be inverted is injective.
func FuzzScope(f *testing.F) {
	f.Add("tenant-1", "POST /orders", "", uint8(2))
	f.Add("a/b", "c", "%2F", uint8(3))
	f.Add("%", "25", "/", uint8(3))
	f.Add("", "", "", uint8(3))
	f.Add("\xff", "%zz", "\x00", uint8(3))
	f.Fuzz(func(t *testing.T, a, b, c string, n uint8) {
		parts := []string{a, b, c}[:n%4]
		scope := idem.Scope(parts...)
		if scope == "" {
			if strings.Join(parts, "") != "" || len(parts) > 1 {
				t.Fatalf("Scope(%q) is empty", parts)
			}
			return
		}
		got := strings.Split(scope, "/")
		for i := range got {
			var err error
			if got[i], err = url.PathUnescape(got[i]); err != nil {
				t.Fatalf("Scope(%q) = %q: %v", parts, scope, err)
			}
		}
		if !slices.Equal(got, parts) {
			t.Fatalf("Scope(%q) = %q, which reads as %q", parts, scope, got)
		}
	})
}

func ExampleScope() {
	fmt.Println(idem.Scope("tenant-1", "POST /orders"))
	fmt.Println(idem.Scope("a", "b/c"))
	fmt.Println(idem.Scope("a/b", "c"))
	// Output:
	// tenant-1/POST %2Forders
	// a/b%2Fc
	// a%2Fb/c
}
