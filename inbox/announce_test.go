package inbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

func redelivered(ms []inbox.Message) []inbox.Message {
	for i := range ms {
		ms[i].Deliveries = 2
	}
	return ms
}

// Nothing is written for a message that is delivered for the first time, and nothing for one that was handled.
func TestAttemptsAreAnnouncedForRedeliveriesAlone(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms := messages("m", 4)
	var seen int
	look := func(tx pgx.Tx, m inbox.Message) error {
		seen = b.count(`select count(*) from idem.inbox where begun = 1`)
		return b.enter(tx, m)
	}
	b.wantStates("DD", b.batch(ms[:2], look))
	if seen != 0 {
		t.Errorf("%d attempts were announced at the first delivery", seen)
	}
	b.wantStates("ddDD", b.batch(redelivered(ms), look))
	if seen != 2 {
		t.Errorf("%d attempts were announced at the second delivery, want 2", seen)
	}
	if n := b.count(`select count(*) from idem.inbox where begun is not null or alone is not null or state <> 'handled'`); n != 0 {
		t.Errorf("%d announcements are left", n)
	}
}

func TestAnnouncementIsWithdrawnIfNobodyIsToBlame(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{"of many": "", "of one alone": `update idem.inbox set begun = 7, alone = 2`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			ms := redelivered(messages("m", 3))
			const all = `select coalesce(sum(begun), 0) + 100 * coalesce(sum(alone), 0) from idem.inbox`
			seen, was := 0, 0
			fail := func() {
				ctx, cancel := context.WithCancel(t.Context())
				outcomes, _ := inbox.Batch(ctx, b.pool, consumer, ms, func(pgx.Tx, inbox.Message) error {
					seen = b.count(all)
					cancel()
					return ctx.Err()
				})
				b.wantStates("RRR", outcomes)
			}
			fail()
			if before != "" {
				b.exec(before)
				was = b.count(all)
				fail()
			}
			if is := b.count(all); seen == was || is != was {
				t.Errorf("suspected for %d, then %d, and %d in the end", was, seen, is)
			}
			b.wantStates("DDD", b.batch(ms, b.enter))
		})
	}
}
