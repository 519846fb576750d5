package outbox_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/seal"
)

func TestEachActOnADeadLetterLeavesOneRowThatSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	messages := []outbox.Message{message("a", "1"), message("b", "2")}
	sealed := swift()
	sealed.Sealer = seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": []byte("0123456789abcdefghijklmnopqrstuv")}})
	o.dead(sealed, messages...)
	ctx := idem.WithReason(idem.WithPerson(t.Context(), "ann"), "INC-7")
	if err := outbox.Redrive(ctx, o.pool, outbox.Ref{Topic: "orders", ID: messages[0].ID}); err == nil {
		t.Error("a letter that cannot be opened was redriven")
	}
	if err := outbox.Redrive(ctx, o.pool, outbox.Ref{Topic: "orders", ID: messages[0].ID}, outbox.WithSealer(sealed.Sealer)); err != nil {
		t.Fatal(err)
	}
	if err := outbox.Drop(ctx, o.pool, outbox.Ref{Topic: "orders", ID: messages[1].ID}); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{outbox.Redrive(ctx, o.pool, outbox.Ref{Topic: "orders", ID: messages[0].ID}), outbox.Drop(ctx, o.pool, outbox.Ref{Topic: "orders", ID: messages[0].ID})} {
		if !errors.Is(err, outbox.ErrNoDeadLetter) {
			t.Errorf("%v", err)
		}
	}
	var got string
	err := o.pool.QueryRow(t.Context(), `select string_agg(concat_ws('|', act, outcome, role = session_user, person, reason, side, source, message_id), e'\n' order by at) from idem.audit`).Scan(&got)
	want := "redrive|to be tried again|t|ann|INC-7|outbox|orders|" + messages[0].ID + "\ndrop|deleted|t|ann|INC-7|outbox|orders|" + messages[1].ID
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
