package inbox_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

func TestMessageIsNotKnownByItsTypeOrItsHeaders(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	m := message("m")
	b.wantStates("D", b.batch([]inbox.Message{m}, b.enter))
	m.Type, m.Headers = "OrderMoved", map[string]string{"trace": "another"}
	b.wantStates("d", b.batch([]inbox.Message{m}, b.enter))
	b.wantOnce(1)
}

// Type and headers come from strangers, and what cannot be stored of them is no reason to lose the message.
func TestWhateverAMessageCarriesItBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 40_000)
	for name, c := range map[string]struct{ given, want inbox.Message }{
		"as it is":     {inbox.Message{Type: "T", Headers: map[string]string{"a": "b", "": `"\`}}, inbox.Message{Type: "T", Headers: map[string]string{"a": "b", "": `"\`}}},
		"nothing":      {inbox.Message{Headers: map[string]string{}}, inbox.Message{}},
		"NUL":          {inbox.Message{Type: "T\x00", Headers: map[string]string{"a\x00": "\x00b"}}, inbox.Message{Type: "T\uFFFD", Headers: map[string]string{"a\uFFFD": "\uFFFDb"}}},
		"not UTF-8":    {inbox.Message{Type: "\xff", Headers: map[string]string{"a\xff": "\xc3"}}, inbox.Message{Type: "\uFFFD", Headers: map[string]string{"a\uFFFD": "\uFFFD"}}},
		"long type":    {inbox.Message{Type: long}, inbox.Message{Type: long[:254]}},
		"long headers": {inbox.Message{Type: "T", Headers: map[string]string{"a": long}}, inbox.Message{Type: "T"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			m := message("m")
			m.Type, m.Headers = c.given.Type, c.given.Headers
			b.wantStates("X", b.batch([]inbox.Message{m}, b.poisoned("m"), once...))
			if err := inbox.Redrive(t.Context(), b.pool, inbox.Ref{Consumer: consumer, Source: "orders", ID: "m"}); err != nil {
				t.Fatal(err)
			}
			var got inbox.Message
			_, _, err := inbox.HandleRedrives(t.Context(), b.pool, consumer, 10, func(_ pgx.Tx, m inbox.Message) error {
				got = m
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			want := redelivered([]inbox.Message{message("m")})[0]
			want.Type, want.Headers = c.want.Type, c.want.Headers
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
