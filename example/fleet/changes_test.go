package fleet_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/operation"
)

// What the old home writes and deletes behind the comparison of all is compared by no digest: each table has to note it.
func TestWhatChangesBehindTheComparisonOfAllArrives(t *testing.T) {
	t.Parallel()
	for name, parted := range map[string][]string{"whole tables": nil, "partitions": {"west", "east"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changesBehind(t, newWorld(t, parted...))
		})
	}
}

func changesBehind(t *testing.T, w *world) {
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
		UPDATE idem.inbox SET attempts = 2 WHERE id = 'changed';
		DELETE FROM idem.inbox WHERE id = 'deleted';
		UPDATE idem.dead_letters SET redrive_at = now() WHERE id = 'changed';
		DELETE FROM idem.dead_letters WHERE id = 'deleted';
		INSERT INTO idem.published (id, seq, created_at, published_at, expires_at, aggregatetype, aggregateid, type)
			VALUES (gen_random_uuid(), 1, now(), now(), now() + interval '1 day', 't', 'acme/c', '');
		INSERT INTO idem.audit (at, id, act, outcome, role, person, reason, step, scope, key, side, consumer, source, message_id)
			VALUES (now(), gen_random_uuid(), 'forget', '', '', '', '', '', 'acme/x', '', '', '', '', '')`
	if _, err := w.west.Pool.Exec(ctx, before); err != nil {
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
	w.move(w.west, w.east, fleet.MoveConfig{Progress: func(s fleet.Stage, _ int64) {
		compared = compared || s == fleet.Compared
		if compared && s == fleet.Copied && !changes { // what comes now is copied behind the fence
			changes = true
			if err := errors.Join(changed(ctx, w.west, meanwhile), endIt(ctx, w.west, ends)); err != nil {
				t.Error(err)
			}
		}
	}})
	for what, query := range map[string]string{
		"a row that was changed":                  `SELECT count(*) FROM orders WHERE customer = 'changed' AND cents = 2`,
		"a message whose attempt has failed":      `SELECT count(*) FROM idem.inbox WHERE id = 'changed' AND attempts = 2`,
		"each message beside it":                  `SELECT count(*) / 8 FROM idem.inbox WHERE id LIKE 'stays-%'`,
		"a dead letter that is to be tried again": `SELECT count(*) FROM idem.dead_letters WHERE id = 'changed' AND redrive_at IS NOT NULL`,
		"a message that has left":                 `SELECT count(*) FROM idem.published WHERE aggregateid = 'acme/c'`,
		"what a person did":                       `SELECT count(*) FROM idem.audit WHERE scope = 'acme/x'`,
		"an operation that has ended":             `SELECT count(*) FROM idem.operations WHERE key = 'ends' AND state = 'completed'`,
		"the record of that":                      `SELECT count(*) FROM idem.records WHERE key = 'ends' AND state = 'completed'`,
		"the step of that":                        `SELECT count(*) FROM idem.steps WHERE outcome = 'done'`,
		"the signal to it":                        `SELECT count(*) FROM idem.signals WHERE taken`,
	} {
		if n := number(t, w.east.Pool, query); n != 1 {
			t.Errorf("%s is at the new home %d times", what, n)
		}
	}
	for table, query := range map[string]string{
		"orders":            `SELECT count(*) FROM orders WHERE customer = 'deleted'`,
		"idem.inbox":        `SELECT count(*) FROM idem.inbox WHERE id = 'deleted'`,
		"idem.dead_letters": `SELECT count(*) FROM idem.dead_letters WHERE id = 'deleted'`,
	} {
		if n := number(t, w.east.Pool, query); n != 0 {
			t.Errorf("what was deleted of %s is at the new home", table)
		}
	}
	for _, c := range []fleet.Cluster{w.west, w.east} { // nothing is noted where no mover listens
		if err := changed(ctx, c, `DELETE FROM fleet.changes`); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := idem.Do(ctx, w.east.Pool, scope, "later", hash("k"), insert(ctx)); err != nil {
		t.Error(err)
	}
	if n := number(t, w.east.Pool, `SELECT count(*) FROM fleet.changes`); n != 0 {
		t.Errorf("%d changes are noted, and no mover is there", n)
	}
}

func changed(ctx context.Context, c fleet.Cluster, statements string) error {
	_, err := c.Pool.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
	return err
}

// endIt sends an operation what it waits for, and calls it again.
func endIt(ctx context.Context, c fleet.Cluster, ends *operation.Definition[int]) error {
	var id string
	if err := c.Pool.QueryRow(ctx, `SELECT id::text FROM idem.operations WHERE key = 'ends'`).Scan(&id); err != nil {
		return err
	}
	if err := operation.Signal(ctx, c.Pool, id, "go", 1); err != nil {
		return err
	}
	_, err := ends.Do(ctx, c.Pool, scope, "ends", hash("k"), 1)
	return err
}
