package fleet_test

import (
	"errors"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/operation"
)

// The comparison of all rows does not cover later writes and deletes. The triggers of each table
// must note them. The tables have partitions, so rows of different partitions may have the same
// ctid.
func TestMove_ChangesAfterTheComparisonArrive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "west", "east")
	ctx := t.Context()
	const before, meanwhile = `
		INSERT INTO orders VALUES ('acme', gen_random_uuid(), 'changed', 1, 'r', 1), ('acme', gen_random_uuid(), 'deleted', 2, 'r', 1);
		INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at)
			SELECT 'acme/c', 's', id, '', 'failing', now(), now() + interval '1 day' FROM unnest(ARRAY['changed', 'deleted']) id;
		INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at)
			SELECT 'acme/c', 's', 'stays-' || n, '', 'failing', now(), now() + interval '1 day' FROM generate_series(1, 8) n;
		INSERT INTO idem.dead_letters (side, consumer, source, id, key, type, class, reason, attempts, created_at, died_at)
			SELECT 'inbox', 'acme/c', 's', id, '', '', '', '', 1, now(), now() FROM unnest(ARRAY['changed', 'deleted']) id`, `
		UPDATE orders SET cents = 2 WHERE customer = 'changed';
		DELETE FROM orders WHERE customer = 'deleted';
		DELETE FROM idem.records WHERE key = 'evicted';
		UPDATE idem.inbox SET attempts = 2 WHERE id = 'changed';
		DELETE FROM idem.inbox WHERE id = 'deleted';
		UPDATE idem.dead_letters SET redrive_at = now() WHERE id = 'changed';
		DELETE FROM idem.dead_letters WHERE id = 'deleted';
		INSERT INTO idem.published (id, seq, created_at, published_at, expires_at, aggregatetype, aggregateid, type)
			VALUES (gen_random_uuid(), 1, now(), now(), now() + interval '1 day', 't', 'acme/c', '');
		INSERT INTO idem.audit (at, id, act, outcome, role, person, reason, step, scope, key, side, consumer, source, message_id)
			VALUES (now(), gen_random_uuid(), 'forget', '', '', '', '', '', 'acme/x', '', '', '', '', '')`
	exec(t, w.west, before)
	if _, err := do(t, w.west, "evicted"); err != nil {
		t.Fatal(err)
	}
	ends := operation.Define("ends", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Await[int](op, "go", time.Hour)
		return idem.Response{Status: 200}, err
	})
	if _, err := ends.Do(ctx, w.west.Pool, scope, "ends", hash("k"), 1, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	compared, changes := false, false
	w.move(func(s fleet.Stage) {
		compared = compared || s == fleet.Compared
		if compared && s == fleet.Copied && !changes { // the following changes are copied behind the fence
			changes = true
			exec(t, w.west, meanwhile)
			signal(t, w.west, "ends", 1)
			if _, err := ends.Do(ctx, w.west.Pool, scope, "ends", hash("k"), 1); err != nil {
				t.Error(err)
			}
		}
	})
	for what, query := range map[string]string{
		"a changed row":                   `SELECT count(*) FROM orders WHERE customer = 'changed' AND cents = 2`,
		"a message with a failed attempt": `SELECT count(*) FROM idem.inbox WHERE id = 'changed' AND attempts = 2`,
		"the unchanged messages":          `SELECT count(*) / 8 FROM idem.inbox WHERE id LIKE 'stays-%'`,
		"a dead letter with a redrive":    `SELECT count(*) FROM idem.dead_letters WHERE id = 'changed' AND redrive_at IS NOT NULL`,
		"a published message":             `SELECT count(*) FROM idem.published WHERE aggregateid = 'acme/c'`,
		"an act of a person":              `SELECT count(*) FROM idem.audit WHERE scope = 'acme/x'`,
		"an ended operation":              `SELECT count(*) FROM idem.operations WHERE key = 'ends' AND state = 'completed'`,
		"the record of the operation":     `SELECT count(*) FROM idem.records WHERE key = 'ends' AND state = 'completed'`,
		"the step of the operation":       `SELECT count(*) FROM idem.steps WHERE outcome = 'done'`,
		"the signal to the operation":     `SELECT count(*) FROM idem.signals WHERE taken`,
	} {
		if n := number(t, w.east, query); n != 1 {
			t.Errorf("%s: %d in the new home, want 1", what, n)
		}
	}
	for table, query := range map[string]string{
		"orders":            `SELECT count(*) FROM orders WHERE customer = 'deleted'`,
		"idem.records":      `SELECT count(*) FROM idem.records WHERE key = 'evicted'`,
		"idem.inbox":        `SELECT count(*) FROM idem.inbox WHERE id = 'deleted'`,
		"idem.dead_letters": `SELECT count(*) FROM idem.dead_letters WHERE id = 'deleted'`,
	} {
		if n := number(t, w.east, query); n != 0 {
			t.Errorf("a deleted row of %s is in the new home", table)
		}
	}
	if _, err := do(t, w.east, "later"); err != nil {
		t.Error(err)
	}
	if n := number(t, w.east, `SELECT count(*) FROM fleet.changes`); n != 0 {
		t.Errorf("%d changes are noted after the move", n)
	}
}
