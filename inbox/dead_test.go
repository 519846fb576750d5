package inbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
)

// ref returns the Ref of a message of the consumer that all tests use.
func ref(id string) inbox.Ref { return inbox.Ref{Consumer: consumer, Source: "orders", ID: id} }

func TestDeadLetters_AreListedShownAndDropped(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sealer idem.Sealer
		opts   []inbox.Option
	}{"plain": {opts: once}, "sealed": {newSealer(), append([]inbox.Option{inbox.WithSealer(newSealer())}, once...)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			ms := messages("m", 3)
			ms[1].Key = "customer-7"
			b.wantStates("XXX", b.batch(ms, b.failing("m-0000", "m-0001", "m-0002"), test.opts...))
			if _, err := inbox.Handle(t.Context(), b.pool, "mail", message("m-0000"), func(pgx.Tx) error { return errPoison }, test.opts...); err != nil {
				t.Fatal(err)
			}
			letters := list(t, b, inbox.Ref{Consumer: consumer})
			if len(letters) != 3 || letters[0].Payload != nil || letters[2].Ref() != ref("m-0002") {
				t.Fatalf("%+v", letters)
			}
			if all, one := list(t, b, inbox.Ref{}), list(t, b, letters[1].Ref()); len(all) != 4 || len(one) != 1 || one[0].ID != "m-0001" {
				t.Errorf("%+v, %+v", all, one)
			}
			shown, err := inbox.Show(t.Context(), b.pool, letters[1].Ref(), test.opts...)
			if diff := cmp.Diff(ms[1], shown.Message); err != nil || diff != "" || shown.Attempts != 1 || shown.Class != "error" || shown.Reason != errPoison.Error() ||
				(shown.SealedBy != "") != (test.sealer != nil) || shown.DiedAt.IsZero() {
				t.Errorf("%+v, %v (-given +shown):\n%s", shown, err, diff)
			}
			if test.sealer != nil {
				if shown, err := inbox.Show(t.Context(), b.pool, ref("m-0000")); err == nil || shown.Payload != nil {
					t.Errorf("without the Sealer: %+v, %v", shown, err)
				}
				if n := b.count(`select count(*) from idem.dead_letters d where encode(payload, 'escape') || to_jsonb(d)::text ~ 'payload of|trace'`); n != 0 {
					t.Errorf("%d rows have a payload or headers in plain text", n)
				}
			}
			if err := inbox.Drop(t.Context(), b.pool, ref("m-0001")); err != nil {
				t.Error(err)
			}
			_, err = inbox.Show(t.Context(), b.pool, ref("m-0001"), test.opts...)
			for what, err := range map[string]error{
				"Show": err, "Drop": inbox.Drop(t.Context(), b.pool, ref("m-0001")), "Redrive": inbox.Redrive(t.Context(), b.pool, ref("m-0001")),
			} {
				if !errors.Is(err, inbox.ErrNoDeadLetter) {
					t.Errorf("%s of a letter that is not there: %v", what, err)
				}
			}
			b.wantStates("X", b.batch(ms[1:2], b.record)) // it is not new for that
		})
	}
}

func list(t *testing.T, b *fixture, only inbox.Ref) (letters []inbox.DeadLetter) {
	t.Helper()
	for l, err := range inbox.List(t.Context(), b.pool, only) {
		if err != nil {
			t.Fatal(err)
		}
		letters = append(letters, l)
	}
	return letters
}

// Type and headers that Postgres cannot store do not prevent a dead letter.
func TestHandle_DeadLettersAnyContents(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	long := strings.Repeat("é", 40_000)
	for id, c := range map[string]struct{ given, want inbox.Message }{
		"as it is":     {inbox.Message{Type: "T", Headers: map[string]string{"a": "b", "": `"\`}}, inbox.Message{Type: "T", Headers: map[string]string{"a": "b", "": `"\`}}},
		"nothing":      {inbox.Message{Headers: map[string]string{}}, inbox.Message{}},
		"NUL":          {inbox.Message{Type: "T\x00", Headers: map[string]string{"a\x00": "\x00b"}}, inbox.Message{Type: "T\uFFFD", Headers: map[string]string{"a\uFFFD": "\uFFFDb"}}},
		"not UTF-8":    {inbox.Message{Type: "\xff", Headers: map[string]string{"a\xff": "\xc3"}}, inbox.Message{Type: "\uFFFD", Headers: map[string]string{"a\uFFFD": "\uFFFD"}}},
		"long type":    {inbox.Message{Type: long}, inbox.Message{Type: long[:254]}},
		"long headers": {inbox.Message{Type: "T", Headers: map[string]string{"a": long}}, inbox.Message{Type: "T"}},
	} {
		m := message(id)
		m.Type, m.Headers = c.given.Type, c.given.Headers
		b.wantStates("X", b.batch([]inbox.Message{m}, b.failing(id), once...))
		b.redrive(id)
		got, _, err := inbox.HandleRedrives(t.Context(), b.pool, consumer, 10, b.record)
		if err != nil {
			t.Fatal(err)
		}
		want := redelivered([]inbox.Message{message(id)})
		want[0].Type, want[0].Headers = c.want.Type, c.want.Headers
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
}
