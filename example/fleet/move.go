package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// Stage is how far a Move is.
type Stage string

// The stages of a move, in their order. Copied comes once for each round, Waiting once for each try of the fence that is given up.
const (
	Copied   Stage = "copied"   // what had been committed when the round began is at the new home, and was compared
	Compared Stage = "compared" // all was compared; from now on what changes is noted, and copied alone
	Waiting  Stage = "waiting"  // a transaction of the tenant's takes too long: its callers go on, and the fence is tried again
	Fenced   Stage = "fenced"   // no transaction of the tenant's commits any more: its callers wait
	Checked  Stage = "checked"  // the rest is at the new home as well, not yet committed
	Left     Stage = "left"     // the old home has committed that it is none: from now on a move only goes forward
	Arrived  Stage = "arrived"  // the new home answers
	Cleaned  Stage = "cleaned"  // the old home has no row of the tenant's
)

// MoveConfig says what moves, and how.
type MoveConfig struct {
	Tables []Table // those of Install

	// Patience is for how long transactions of the tenant that are under way are waited for, while its callers wait as well. If one takes
	// longer, the callers go on, and the fence is tried again a second later. The default is 200 ms.
	Patience time.Duration

	// MaxPause bounds what comes behind the fence. If it takes longer everything goes back, and is tried again after another round. The
	// default is 5 seconds.
	MaxPause time.Duration

	// Progress is told of each stage, and of rows copied so far. The move goes on when it returns.
	Progress func(stage Stage, rows int64)
}

// Report is what a Move has done.
type Report struct {
	Rounds int           // of copying, while the old home was serving
	Rows   int64         // copied, all rounds together
	Tries  int           // of the fence
	Pause  time.Duration // from the fence to the commit of the new home
}

// What Move refuses.
var (
	ErrInvalidTenant = errors.New("fleet: the name of a tenant has a slash, a percent sign, or nothing")
	ErrMoving        = errors.New("fleet: another process moves the tenant")
	ErrNotHere       = errors.New("fleet: the tenant is not in the cluster that it is to leave, nor on its way from there")
)

// ErrUnconfirmed says that a COMMIT did not wait for its standby because a person or a program has cancelled that. Move again.
var ErrUnconfirmed = errors.New("fleet: a standby has not confirmed the commit")

// Move makes another cluster the home of a tenant. It returns when no row of the tenant's is left in the old one. If it returns an
// error, or does not return, the same Move goes on with what was begun.
func Move(ctx context.Context, from, to Cluster, tenant string, config MoveConfig) (report Report, err error) {
	if tenant == "" || idem.Scope(tenant) != tenant {
		return report, ErrInvalidTenant
	}
	if config.Patience <= 0 {
		config.Patience = 200 * time.Millisecond
	}
	if config.MaxPause <= 0 {
		config.MaxPause = 5 * time.Second
	}
	m := &move{MoveConfig: config, fromName: from.Name, toName: to.Name, tenant: tenant, report: &report}
	for _, c := range []struct {
		at   **connection
		pool Cluster
	}{{&m.fence, from}, {&m.reader, from}, {&m.target, to}} {
		if *c.at, err = connect(ctx, c.pool); err != nil {
			return report, err
		}
		defer (*c.at).close()
	}
	return report, m.run(ctx)
}

// move is one Move. The fence is held on a connection of its own, because what is read behind it is read in a snapshot that
// begins later.
type move struct {
	MoveConfig
	fromName, toName      string
	tenant                string
	report                *Report
	parts                 []part
	fence, reader, target *connection
	since                 int64 // what was written by transactions before this one is at the new home, if it is not 0
}

func (m *move) run(ctx context.Context) error {
	for _, c := range []*connection{m.fence, m.target} {
		var alone bool
		if err := c.QueryRow(ctx, `SELECT pg_try_advisory_lock(1718379893, hashtext($1))`, m.tenant).Scan(&alone); err != nil {
			return err
		}
		if !alone {
			return ErrMoving
		}
	}
	if err := m.list(ctx); err != nil {
		return err
	}
	stage, err := m.begin(ctx)
	if err != nil {
		return err
	}
	if stage == Left {
		if err := m.list(ctx, left+"running", left+"parked"); err != nil {
			return err
		}
	}
	if stage != Arrived {
		if err := m.copy(ctx); err != nil {
			return err
		}
		if err := m.cross(ctx, stage == Left); err != nil {
			return err
		}
	}
	return m.clean(ctx)
}

// list lists what is the tenant's.
func (m *move) list(ctx context.Context, states ...string) error {
	m.parts = partsOf(m.tenant, m.Tables, append(states, "running", "parked"))
	return describe(ctx, m.reader.Conn, m.parts)
}

// begin finds out how far the move is.
func (m *move) begin(ctx context.Context) (Stage, error) {
	here, err := stateOf(ctx, m.fence.Conn, m.tenant)
	if err != nil {
		return "", err
	}
	there, err := stateOf(ctx, m.target.Conn, m.tenant)
	if err != nil {
		return "", err
	}
	going := here.state == "left" && here.cluster == m.toName
	switch {
	case going && there.state == "home", here.state == "gone" && here.cluster == m.toName && there.state == "home":
		return Arrived, nil
	case here.state != "home" && !going, there.state != "" && there.state != "arriving" && there.state != "gone":
		return "", ErrNotHere
	case there.state == "arriving" && there.cluster == m.fromName:
		m.since = there.copied
	default:
		if err := m.clear(ctx, m.target); err != nil {
			return "", err
		}
		_, err = m.target.Exec(ctx, `INSERT INTO fleet.tenants (tenant, state, cluster) VALUES ($1, 'arriving', $2)
			ON CONFLICT (tenant) DO UPDATE SET state = 'arriving', cluster = EXCLUDED.cluster, copied = NULL`, m.tenant, m.fromName)
	}
	if going {
		return Left, err
	}
	return "", err
}

// enough is how long a round may take to be the last one before all is compared, or before the fence.
const (
	enough    = 300 * time.Millisecond
	maxRounds = 4
)

// copy copies in rounds while the old home is serving, each what has changed since the one before. As soon as changes are noted it compares all, and
// what is noted from then on is all that the copy lacks.
func (m *move) copy(ctx context.Context) error {
	for rounds := 1; ; rounds++ {
		began := time.Now()
		if err := m.round(ctx, false); err != nil {
			return err
		}
		if time.Since(began) < enough || rounds == maxRounds {
			break
		}
	}
	if err := m.listen(ctx); err != nil {
		return err
	}
	err := m.round(ctx, true)
	var differs *DifferenceError
	if errors.As(err, &differs) { // as after a failover that has lost transactions: what was copied of them is not there
		m.since = 0
		if err := m.clear(ctx, m.target); err != nil {
			return err
		}
		err = m.round(ctx, true)
	}
	if err == nil {
		m.tell(Compared)
	}
	for rounds := 1; err == nil; rounds++ {
		began := time.Now()
		if err = m.follow(ctx); time.Since(began) < enough || rounds == maxRounds {
			break
		}
	}
	return err
}

// round looks at each row, copies what has changed, and compares all if it is told to.
func (m *move) round(ctx context.Context, compares bool) error {
	return m.between(ctx, func(from, to pgx.Tx, s snapshot) error {
		for i := range m.parts {
			p := &m.parts[i]
			if p.late {
				continue
			}
			p.values = nil
			if p.name == operations {
				p.values = onTheWay
			}
			condition := ""
			if m.since != 0 {
				condition = m.changed("t")
				if p.delta != nil {
					condition = p.delta(m.changed)
				}
			}
			if err := m.copyPart(ctx, from, to, p, condition); err != nil {
				return err
			}
			if !compares {
				continue
			}
			if err := compare(ctx, from, to, p, s.moment); err != nil {
				return err
			}
		}
		return nil
	}, m.copied)
}

// follow copies what is noted.
func (m *move) follow(ctx context.Context) error {
	return m.between(ctx, func(from, to pgx.Tx, _ snapshot) error { return m.copyChanges(ctx, from, to, onTheWay) }, m.copied)
}

// copied ends a round.
func (m *move) copied(ctx context.Context, to pgx.Tx, s snapshot) error {
	if _, err := to.Exec(ctx, `UPDATE fleet.tenants SET copied = $2 WHERE tenant = $1`, m.tenant, s.horizon); err != nil {
		return err
	}
	if err := to.Commit(ctx); err != nil {
		return err
	}
	m.since = s.horizon
	if err := m.forgetChanges(ctx, s.text); err != nil {
		return err
	}
	m.report.Rounds++
	m.tell(Copied)
	return nil
}

func (m *move) copyPart(ctx context.Context, from, to pgx.Tx, p *part, condition string) error {
	rows, err := copyRows(ctx, from, to, p, condition)
	m.report.Rows += rows
	return err
}

// changed is a condition on rows written by transactions that may not have been over when the round before began. The list of those
// transactions would not do: it does not name their savepoints, whose numbers are on the rows. Numbers are compared
// modulo 2^32, as the server does; a row that has been frozen for long may be copied once more.
func (m *move) changed(alias string) string {
	return fmt.Sprintf("((%s.xmin::text::bigint - %d) & 4294967295) < 2147483648", alias, m.since)
}

// snapshot is what a round sees of the old home.
type snapshot struct {
	text    string
	horizon int64 // the oldest transaction that was not over
	moment  time.Time
}

// between reads in one snapshot of the old home, and writes in one transaction of the new one, which commit ends.
func (m *move) between(ctx context.Context, do func(from, to pgx.Tx, s snapshot) error, commit func(ctx context.Context, to pgx.Tx, s snapshot) error) error {
	from, err := m.reader.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer from.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it has written nothing
	var s snapshot
	if err := from.QueryRow(ctx, `SELECT pg_current_snapshot()::text, pg_snapshot_xmin(pg_current_snapshot())::text::bigint, clock_timestamp()`).
		Scan(&s.text, &s.horizon, &s.moment); err != nil {
		return err
	}
	to, err := m.target.Begin(ctx)
	if err != nil {
		return err
	}
	defer to.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it is over
	if _, err := to.Exec(ctx, `SET LOCAL fleet.moving = 'on'`); err != nil {
		return err
	}
	if err := do(from, to, s); err != nil {
		return err
	}
	return commit(ctx, to, s)
}

func (m *move) tell(s Stage) {
	if m.Progress != nil {
		m.Progress(s, m.report.Rows)
	}
}
