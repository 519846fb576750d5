package abridge_test

import (
	"strings"
	"testing"

	"github.com/idem-go/idem/internal/abridge"
)

func TestKeyIsShownByItsBeginningAndItsLength(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ key, want string }{
		{"", "…(0)"},
		{"order-15-bytes!", "…(15)"},
		{"order-16-bytes!!", "orde…(16)"},
		{"7f3c9a52-0d1e-4b6f-9a52-0d1e4b6f7f3c", "7f3c…(36)"},
		{"abcé-0123456789-", "abc…(17)"},
		{"日本語の鍵は日本語です", "日…(33)"},
		{"\x1b[2J-0123456789-", `\x1b[2J…(16)`},
		{"\u202eab-0123456789-", `\u202ea…(17)`},
		{"\xff\xfe\xfd\xfc0123456789ab", `\xff\xfe\xfd\xfc…(16)`},
		{strings.Repeat("\x80", 16), "…(16)"},
		{`"a\b0123456789ab`, `\"a\\b…(16)`},
	} {
		if got := abridge.Key(test.key); got != test.want {
			t.Errorf("%q is shown as %s, want %s", test.key, got, test.want)
		}
	}
}

func TestIDIsShownByMoreOfIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ id, want string }{
		{"evt_3P", "…(6)"},
		{"evt_3PqXyzAbCdEfGhIjKlMn", "evt_3PqX…(24)"},
	} {
		if got := abridge.ID(test.id); got != test.want {
			t.Errorf("%q is shown as %s, want %s", test.id, got, test.want)
		}
	}
}
