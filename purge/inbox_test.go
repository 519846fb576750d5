package purge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// messages inserts n messages of a consumer that have expired for the given time, or will expire if
// it is negative.
func (h *house) messages(n int, consumer, state, expired string) {
	h.t.Helper()
	h.exec(`insert into idem.inbox (consumer, source, id, hash, state, since, expires_at, attempts, retry_at, key)
		select $2, 'orders', i::text, sha256(i::text::bytea), $3, now() - '30 days'::interval, now() - $4::interval, 1, now(), 'a key'
		from generate_series(1, $1) i`, n, consumer, state, expired)
}

func TestOnce_DeletesInboxEntriesAndKeepsDeadLetters(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.messages(3000, "handled, expired", "handled", "2 hours")
	h.messages(300, "handled, in its grace", "handled", "30 minutes")
	h.messages(300, "handled", "handled", "-7 days")
	h.messages(20, "failing", "failing", "-7 days")
	h.messages(20, "failing, never delivered again", "failing", "2 hours")
	h.messages(20, "dead", "dead", "2 hours")
	h.exec(`insert into idem.dead_letters (side, consumer, source, id, key, type, class, reason, attempts, created_at, died_at)
		select 'inbox', consumer, source, id, key, '', 'class', 'reason', 10, now() - '1 year'::interval, now() - '1 year'::interval
		from idem.inbox where state = 'dead'`)
	rep := h.once(swift())
	for _, s := range rep.Tables {
		if s.Table == "inbox" && (s.Ended != Finished || s.Deleted != 3040 || s.Kept != 620) {
			t.Errorf("%+v", s)
		}
	}
	want := map[string]int64{"handled, in its grace": 300, "handled": 300, "failing": 20}
	if diff := cmp.Diff(want, h.remaining("consumer", "idem.inbox")); diff != "" {
		t.Errorf("messages that are left (-want +got):\n%s", diff)
	}
	if n := h.count("select count(*) from idem.dead_letters"); n != 20 {
		t.Errorf("%d dead letters are left", n)
	}
	o := swift()
	o.Grace = time.Minute
	h.once(o)
	if n := h.count("select count(*) from idem.inbox"); n != 320 {
		t.Errorf("%d messages are left after a shorter grace", n)
	}
}
