package purge

import (
	"testing"
	"time"
)

func TestOnce_KeepsAuditEntriesForAYear(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`insert into idem.audit (at, id, act, outcome, role, person, reason, step, scope, key, side, consumer, source, message_id)
		select now() - i * interval '30 days', gen_random_uuid(), 'retry', '', '', '', '', '', '', '', '', '', '', '' from generate_series(1, 20) i`)
	h.once(swift())
	if n := h.count("select count(*) from idem.audit"); n != 12 {
		t.Errorf("%d acts are left, want those of a year", n)
	}
	o := swift()
	o.Audit = 45 * 24 * time.Hour
	h.once(o)
	if n := h.count("select count(*) from idem.audit"); n != 1 {
		t.Errorf("%d acts are left, want those of 45 days", n)
	}
}
