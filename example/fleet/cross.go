package fleet

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// busyPause is the delay between two attempts to make the new cluster the home.
const busyPause = time.Second

// cross makes the target the home of the tenant. It tries again while open transactions of the
// tenant keep it from locking the tenant (see raise), and copies the changes between two attempts.
// If the parameter left is true, an earlier Move has already committed that the old home is no
// longer the home.
func (m *move) cross(ctx context.Context, left bool) error {
	for {
		m.report.Tries++
		err := m.tryCross(ctx, left)
		if !busy(err) && (!errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil) {
			return err
		}
		if m.fence.IsClosed() || m.reader.IsClosed() || m.target.IsClosed() {
			return err // the caller must call Move again
		}
		m.reached(Waiting)
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(busyPause):
		}
		if err := m.follow(ctx); err != nil {
			return err
		}
	}
}

// busy reports whether err is a lock timeout: a transaction of the tenant took too long.
func busy(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "55P03"
}

// tryCross makes one attempt. In a transaction of the old home it takes the fence, the lock that
// stops all transactions of the tenant. Then it copies the remaining changes in a transaction of
// the new home. The old home commits first. If this process dies between the two commits, the
// tenant has no home, but it never has two.
func (m *move) tryCross(ctx context.Context, left bool) error {
	began := time.Now()
	fence, err := m.fence.Begin(ctx)
	if err != nil {
		return err
	}
	defer fence.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // fails only after the commit or another error
	if !left {
		if err := m.raise(ctx, fence); err != nil {
			return err
		}
	}
	m.reached(Fenced)
	return m.between(ctx, func(from, to pgx.Tx) error {
		if err := m.copyChanges(ctx, from, to, atHandover); err != nil {
			return err
		}
		for i := range m.parts {
			if !m.parts[i].late {
				continue
			}
			if err := m.copyPart(ctx, from, to, &m.parts[i]); err != nil {
				return err
			}
		}
		_, err := to.Exec(ctx, `UPDATE fleet.tenants SET state = 'home', cluster = $2 WHERE tenant = $1`, m.tenant, m.toName)
		if err == nil && time.Since(began) > m.MaxPause && !left {
			err = context.DeadlineExceeded
		}
		if err == nil {
			m.reached(Checked)
		}
		return err
	}, func(ctx context.Context, to pgx.Tx, _ string) error {
		if err := m.fence.commit(ctx, fence); err != nil {
			return err
		}
		m.reached(Left)
		if err := m.target.commit(ctx, to); err != nil {
			return err
		}
		m.report.Pause = time.Since(began)
		m.reached(Arrived)
		return nil
	})
}

// duringCopy replaces columns in the copies of operations that the old home still runs. Their
// copies have the state arriving, in which no process of the new home runs them.
var duringCopy = map[string]string{
	`"state"`: `CASE WHEN ` + open("t") + ` THEN 'arriving' ELSE t.state END`, `"epoch"`: "t.epoch", `"owner"`: "NULL::int4",
}

// atHandover replaces columns in the last copies of operations in progress: the new home gets them
// without an owner, and with an epoch that no process of the old home has.
var atHandover = map[string]string{
	`"state"`: `CASE WHEN starts_with(t.state, '` + left + `') THEN substr(t.state, ` + lengthOfLeft + `) ELSE t.state END`,
	`"epoch"`: `CASE WHEN t.state IN ('running', 'parked') THEN t.epoch + 1 ELSE t.epoch END`,
	`"owner"`: `CASE WHEN ` + open("t") + ` THEN NULL ELSE t.owner END`,
}

// lengthOfLeft is the position in a state at which the text after the prefix left begins, for
// substr.
const lengthOfLeft = "6" // len(left) + 1

// raise takes the fence, an exclusive lock of the tenant: it waits until the open transactions of
// the tenant have ended, and prevents new transactions from committing. Most transactions of an
// operation claim no key and therefore do not ask for the lock. So raise also increments the epoch
// of the operations in progress, which makes these transactions fail.
func (m *move) raise(ctx context.Context, fence pgx.Tx) error {
	batch := &pgx.Batch{}
	batch.Queue(`SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true),
		set_config('fleet.moving', 'on', true)`, milliseconds(m.Patience), milliseconds(2*m.MaxPause))
	batch.Queue(`SELECT pg_advisory_xact_lock(1718379892, hashtext($1))`, m.tenant)
	for _, state := range []string{"running", "parked"} { // both states have an index
		batch.Queue(`UPDATE idem.operations SET epoch = epoch + 1, owner = NULL, state = '`+left+state+`'
			WHERE state = '`+state+`' AND scope >= $1 AND scope < $2`, m.tenant+"/", m.tenant+"0")
	}
	batch.Queue(`UPDATE fleet.tenants SET state = 'left', cluster = $2 WHERE tenant = $1 AND state = 'home'`, m.tenant, m.toName)
	return fence.SendBatch(ctx, batch).Close()
}

// clean deletes the rows of the tenant from the old home. Before that, it commits a transaction in
// the new home. With synchronous replication, that commit confirms that the standby also has the
// earlier commits.
func (m *move) clean(ctx context.Context) error {
	confirm, err := m.target.Begin(ctx)
	if err != nil {
		return err
	}
	defer confirm.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // fails only after the commit or another error
	if _, err := confirm.Exec(ctx, `UPDATE fleet.tenants SET state = 'home' WHERE tenant = $1 AND state = 'home'`, m.tenant); err != nil {
		return err
	}
	if err := m.target.commit(ctx, confirm); err != nil {
		return err
	}
	if err := m.clear(ctx, m.fence); err != nil {
		return err
	}
	if _, err := m.fence.Exec(ctx, `UPDATE fleet.tenants SET state = 'gone' WHERE tenant = $1 AND state = 'left'`, m.tenant); err != nil {
		return err
	}
	m.reached(Cleaned)
	return nil
}

// portion is the number of rows that one transaction deletes.
const portion = "5000"

// clear deletes the rows of the tenant from one cluster, in the reverse order of m.parts. The
// outbox comes first, so that the relay does not read rows that are about to disappear. Steps are
// deleted before their operations.
func (m *move) clear(ctx context.Context, c *connection) error {
	for i := len(m.parts) - 1; i >= 0; i-- {
		p := &m.parts[i]
		keys := strings.Join(p.keys, ", ")
		statement := "DELETE FROM " + p.name + " WHERE (" + keys + ") IN (SELECT " + keys + p.from("") + " LIMIT " + portion + ")"
		for deleted := int64(1); deleted > 0; {
			err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, `SET LOCAL fleet.moving = 'on'`); err != nil {
					return err
				}
				tag, err := tx.Exec(ctx, statement)
				deleted = tag.RowsAffected()
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
