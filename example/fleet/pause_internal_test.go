package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
)

// Callers wait while the fence is up. The work of the mover must then depend on the latest changes
// and not on the size of the tenant.
func TestMove_FencedWorkDoesNotGrowWithTheTenant(t *testing.T) {
	t.Parallel()
	small, large := readBehindTheFence(t, 200), readBehindTheFence(t, 1500)
	t.Logf("rows read behind the fence: %d with 200 keys, %d with 1500 keys", small, large)
	if large > small+200 {
		t.Errorf("rows read behind the fence: %d with 200 keys, %d with 1500 keys", small, large)
	}
}

// A round reads a snapshot. The notes of later commits must remain for the next round.
func TestMove_KeepsNotesThatARoundHasNotCopied(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10)
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { return s.mover.list(ctx) },
		func() error { _, err := s.mover.begin(ctx); return err },
		func() error { return s.mover.listen(ctx) },
		func() error { s.write(10); return nil },
		func() error {
			return s.mover.between(ctx, func(from, to pgx.Tx) error {
				s.write(7)
				return s.mover.copyChanges(ctx, from, to, duringCopy)
			}, s.mover.copied)
		},
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	var noted int
	if err := s.west.Pool.QueryRow(ctx, `SELECT count(*) FROM fleet.changes WHERE part = 'idem.records'`).Scan(&noted); err != nil || noted != 7 {
		t.Errorf("%d keys are noted, want the 7 that the round has not copied: %v", noted, err)
	}
}

// scene has two clusters, a tenant whose home is west, and its mover.
type scene struct {
	t          *testing.T
	west, east Cluster
	written    int
	mover      *move
}

func newScene(t *testing.T, keys int) *scene {
	t.Helper()
	ctx := t.Context()
	s := &scene{t: t, west: Cluster{Name: "west", Pool: pgtest.New(t)}, east: Cluster{Name: "east", Pool: pgtest.New(t)}}
	tables := []Table{{Name: "public.things", Tenant: "tenant"}}
	for _, c := range []Cluster{s.west, s.east} {
		if _, err := c.Pool.Exec(ctx, `CREATE TABLE things (tenant text, id uuid, PRIMARY KEY (tenant, id))`); err != nil {
			t.Fatal(err)
		}
		if err := Install(ctx, c, tables); err != nil {
			t.Fatal(err)
		}
	}
	if err := Place(ctx, s.west, "acme"); err != nil {
		t.Fatal(err)
	}
	s.write(keys)
	for _, c := range []Cluster{s.west, s.east} { // as autovacuum would have done
		if _, err := c.Pool.Exec(ctx, `ANALYZE`); err != nil {
			t.Fatal(err)
		}
	}
	s.mover = &move{fromName: "west", toName: "east", tenant: "acme", report: &Report{}}
	s.mover.MoveConfig = MoveConfig{Tables: tables, Patience: time.Minute, MaxPause: time.Minute}
	s.mover.fence, s.mover.reader, s.mover.target = session(t, s.west), session(t, s.west), session(t, s.east)
	return s
}

func (s *scene) write(keys int) {
	s.t.Helper()
	if err := pgx.BeginFunc(s.t.Context(), s.west.Pool, func(tx pgx.Tx) error { return writeKeys(s.t.Context(), tx, s.written, s.written+keys) }); err != nil {
		s.t.Error(err)
	}
	s.written += keys
}

// readBehindTheFence moves a tenant that writes after each round. It returns how many rows the
// mover reads behind the fence in both clusters.
func readBehindTheFence(t *testing.T, keys int) (read int64) {
	t.Helper()
	s := newScene(t, keys)
	m := s.mover
	m.Progress = func(stage Stage, _ int64) {
		switch stage {
		case Copied:
			s.write(10)
		case Fenced: // the counters of a new session begin at zero
			m.reader, m.target = session(t, s.west), session(t, s.east)
		case Checked:
			read = rowsRead(t, m.reader) + rowsRead(t, m.target)
		}
	}
	if err := m.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	const there = `SELECT count(*) FROM things JOIN idem.records ON id = execution_id JOIN idem.inbox i ON i.id = records.key`
	var arrived int
	if err := s.east.Pool.QueryRow(t.Context(), there).Scan(&arrived); err != nil || arrived != s.written {
		t.Errorf("%d keys have arrived, want %d: %v", arrived, s.written, err)
	}
	return read
}

// writeKeys writes rows as calls do: first the claims, then the outcomes.
func writeKeys(ctx context.Context, tx pgx.Tx, from, to int) error {
	batch := &pgx.Batch{}
	for _, statement := range []string{
		`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
			SELECT 'acme/x', n::text, '\x00', gen_random_uuid(), now(), now() + interval '1 day', 'processing' FROM generate_series($1::int, $2::int - 1) n`,
		`INSERT INTO things (tenant, id) SELECT 'acme', execution_id FROM idem.records WHERE key::int >= $1 AND key::int < $2`,
		`INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at)
			SELECT 'acme/c', 's', n::text, '\x00', 'handled', now(), now() + interval '1 day' FROM generate_series($1::int, $2::int - 1) n`,
		`UPDATE idem.records SET state = 'completed', status = 201, completed_at = now() WHERE key::int >= $1 AND key::int < $2`,
	} {
		batch.Queue(statement, from, to)
	}
	return tx.SendBatch(ctx, batch).Close()
}

func session(t *testing.T, c Cluster) *connection {
	t.Helper()
	conn, err := connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.close)
	return conn
}

func rowsRead(t *testing.T, c *connection) (rows int64) {
	t.Helper()
	const read = `SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_xact_user_tables`
	if err := c.QueryRow(t.Context(), read).Scan(&rows); err != nil {
		t.Error(err)
	}
	return rows
}
