package inbox_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
)

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
			if len(letters) != 3 || letters[0].Payload != nil || letters[2].Ref() != (inbox.Ref{Consumer: consumer, Source: "orders", ID: "m-0002"}) {
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
			if err := inbox.Drop(t.Context(), b.pool, inbox.Ref{Consumer: consumer, Source: "orders", ID: "m-0001"}); err != nil {
				t.Error(err)
			}
			_, err = inbox.Show(t.Context(), b.pool, letters[1].Ref(), test.opts...)
			for what, err := range map[string]error{
				"Show": err, "Drop": inbox.Drop(t.Context(), b.pool, inbox.Ref{Consumer: consumer, Source: "orders", ID: "m-0001"}), "Redrive": inbox.Redrive(t.Context(), b.pool, inbox.Ref{Consumer: consumer, Source: "orders", ID: "m-0001"}),
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

func TestShow_NeedsTheSealer(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.batch(messages("m", 1), b.failing("m-0000"), append([]inbox.Option{inbox.WithSealer(newSealer())}, once...)...)
	if shown, err := inbox.Show(t.Context(), b.pool, inbox.Ref{Consumer: consumer, Source: "orders", ID: "m-0000"}); err == nil || shown.Payload != nil {
		t.Errorf("%+v, %v", shown, err)
	}
}

func TestRunRedrives_LogsASecondDeadLetter(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.wantStates("X", b.batch(messages("m", 1), b.failing("m-0000"), once...))
	b.redrive("m-0000")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, write := io.Pipe()
	go inbox.RunRedrives(ctx, b.pool, consumer, b.failing("m-0000"), inbox.RedriveConfig{Options: once, Logger: slog.New(slog.NewTextHandler(write, nil))})
	line, err := bufio.NewReader(read).ReadString('\n')
	for _, want := range []string{"level=ERROR", "a redriven message is a dead letter again", "message=m-0000", errPoison.Error()} {
		if !strings.Contains(line, want) {
			t.Errorf("%q, %v: want %s", line, err, want)
		}
	}
}

func TestRunRedrives_HandlesRedrivenMessages(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := messages("m", 2)
	b.wantStates("XX", b.batch(ms, b.failing("m-0000", "m-0001"), once...))
	ctx, stop := context.WithCancel(t.Context())
	ended, handled := make(chan error, 1), make(chan string, 2)
	go func() {
		ended <- inbox.RunRedrives(ctx, b.pool, consumer, func(tx pgx.Tx, m inbox.Message) error {
			defer func() { handled <- m.ID }()
			return b.record(tx, m)
		}, inbox.RedriveConfig{Every: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	}()
	for _, m := range ms {
		if err := inbox.Redrive(t.Context(), b.pool, inbox.Ref{Consumer: consumer, Source: "orders", ID: m.ID}); err != nil {
			t.Fatal(err)
		}
		if id := await(t, "a redriven message", handled); id != m.ID {
			t.Errorf("%s is handled, want %s", id, m.ID)
		}
	}
	for deadline := time.Now().Add(limit); b.count(`select count(*) from idem.dead_letters`) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("they are still dead letters")
		}
	}
	stop()
	if err := await(t, "the end", ended); err != nil {
		t.Error(err)
	}
	b.wantOnce(2)
	if err := inbox.RunRedrives(t.Context(), b.pool, "", b.record, inbox.RedriveConfig{}); !errors.Is(err, inbox.ErrInvalidName) {
		t.Errorf("without a consumer: %v", err)
	}
	if err := inbox.RunRedrives(t.Context(), nil, consumer, b.record, inbox.RedriveConfig{}); err == nil || !strings.Contains(err.Error(), "pool") {
		t.Errorf("without a pool: %v", err)
	}
}

func TestHandle_IgnoresTypeAndHeadersInIdentity(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	m := message("m")
	b.wantStates("D", b.batch([]inbox.Message{m}, b.record))
	m.Type, m.Headers = "OrderMoved", map[string]string{"trace": "another"}
	b.wantStates("d", b.batch([]inbox.Message{m}, b.record))
	b.wantOnce(1)
}

// Type and headers that Postgres cannot store do not prevent a dead letter.
func TestHandle_DeadLettersAnyContents(t *testing.T) {
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
			b := newFixture(t)
			m := message("m")
			m.Type, m.Headers = c.given.Type, c.given.Headers
			b.wantStates("X", b.batch([]inbox.Message{m}, b.failing("m"), once...))
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
