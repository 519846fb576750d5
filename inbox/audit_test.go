package inbox_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
)

func TestEachActOnADeadLetterLeavesOneRowThatSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.wantStates("X", b.batch(messages("m", 1), b.poisoned("m-0000"), once...))
	ctx := idem.WithReason(idem.WithPerson(t.Context(), "ann"), "INC-7")
	if err := inbox.Redrive(ctx, b.pool, inbox.Ref{Consumer: consumer, Source: "orders", ID: "m-0000"}); err != nil {
		t.Fatal(err)
	}
	if err := inbox.Drop(ctx, b.pool, inbox.Ref{Consumer: consumer, Source: "orders", ID: "m-0000"}); err != nil {
		t.Fatal(err)
	}
	for _, act := range []error{inbox.Redrive(ctx, b.pool, inbox.Ref{Consumer: consumer, Source: "orders", ID: "m-0000"}), inbox.Drop(ctx, b.pool, inbox.Ref{Consumer: consumer, Source: "orders", ID: "m-0000"})} {
		if !errors.Is(act, inbox.ErrNoDeadLetter) {
			t.Errorf("%v", act)
		}
	}
	var got string
	err := b.pool.QueryRow(t.Context(), `select string_agg(concat_ws('|', act, outcome, role = session_user, person, reason, side, consumer, source, message_id), e'\n' order by at) from idem.audit`).Scan(&got)
	want := "redrive|to be tried again|t|ann|INC-7|inbox|" + consumer + "|orders|m-0000\ndrop|deleted|t|ann|INC-7|inbox|" + consumer + "|orders|m-0000"
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
