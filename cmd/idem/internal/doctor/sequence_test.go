package doctor_test

import (
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
)

func TestDoctor_FindsASequenceBehindItsTable(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.findsNothing("sequences")
	for _, held := range []string{"true", "false"} {
		w.exec(`INSERT INTO idem.outbox (seq, created_at, id, held, aggregatetype, aggregateid, type) OVERRIDING SYSTEM VALUE
			VALUES (7, now(), gen_random_uuid(), ` + held + `, 't', 'k', 't')`)
		w.finds("sequences", doctor.Problem, "go up to 7", "idem.outbox_seq_seq is at 0", "SELECT setval('idem.outbox_seq_seq', 7)")
		w.exec("DELETE FROM idem.outbox")
		w.findsNothing("sequences")
	}
	w.exec(`INSERT INTO idem.delayed (seq, not_before, created_at, id, aggregatetype, aggregateid, type) OVERRIDING SYSTEM VALUE
		VALUES (7, now() + interval '1 h', now(), gen_random_uuid(), 't', 'k', 't')`)
	w.finds("sequences", doctor.Problem, "go up to 7", "idem.delayed_seq_seq is at 0", "SELECT setval('idem.delayed_seq_seq', 7)")
	w.exec("DELETE FROM idem.delayed")
	w.findsNothing("sequences")
	for _, of := range []string{
		`INSERT INTO idem.leases VALUES (9, now())`,
		`INSERT INTO idem.relays VALUES ('', 0, 9, now(), 1)`,
		`INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, owner, state, undoing, step, seq, since, wake_at, tries, attempts)
			VALUES (gen_random_uuid(), 's', 'k', '', 'n', 1, now(), 1, 9, 'running', false, '', 0, now(), now(), 0, 0)`,
	} {
		w.exec(of)
		w.finds("sequences", doctor.Warning, "go up to 9", "idem.instances is at 0", "setval('idem.instances', 9)")
		w.exec("TRUNCATE idem.leases, idem.relays, idem.operations")
		w.findsNothing("sequences")
	}
	w.exec(`INSERT INTO idem.leases VALUES (9, now())`, `SELECT setval('idem.instances', 9) FROM idem.instances WHERE last_value < 9`)
	w.findsNothing("sequences")
	w.exec(`SELECT setval('idem.instances', 5) FROM idem.instances WHERE last_value < 5`)
	w.findsNothing("sequences") // the remedy never moves a sequence back
}
