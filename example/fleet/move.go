package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// Stage is the progress of a Move.
type Stage string

// These are the stages. Copied is reported after each round of copying, and rounds continue after
// Compared. Waiting is reported each time that the Move gives up waiting for a lock, and tries
// again.
const (
	// Copied: the new home has the rows that were committed when this round of copying began.
	Copied Stage = "copied"
	// Compared: all rows were copied and compared. The next rounds copy the rows that have changed.
	Compared Stage = "compared"
	// Waiting: a transaction of the tenant takes too long. The callers of the service continue, and
	// the Move tries again.
	Waiting Stage = "waiting"
	// Fenced: no transaction of the tenant can commit. New calls are refused, and callers try
	// again.
	Fenced Stage = "fenced"
	// Checked: the new home also has the last changes, but has not committed them yet.
	Checked Stage = "checked"
	// Left: the old home has committed that it is no longer the home. From now on the move cannot
	// be undone.
	Left Stage = "left"
	// Arrived: the new home serves the tenant.
	Arrived Stage = "arrived"
	// Cleaned: the old home has no rows of the tenant.
	Cleaned Stage = "cleaned"
)

// MoveConfig is the configuration of a Move.
type MoveConfig struct {
	Tables []Table // the same tables as for Install

	// Patience is how long Move waits for the open transactions of the tenant before it fences the
	// tenant off. New calls are refused during that time. If an open transaction takes longer, Move
	// admits new calls and tries again a second later. The default is 200 ms.
	Patience time.Duration

	// MaxPause limits how long the tenant is fenced off. If copying the last changes takes longer,
	// Move admits new calls, copies another round, and tries again. The default is 5 seconds.
	MaxPause time.Duration

	// Progress is called at each stage, with the number of rows copied so far. The move continues
	// when Progress returns.
	Progress func(stage Stage, rows int64)
}

// Report is the result of a Move.
type Report struct {
	Rounds int           // rounds of copying while the old home served requests
	Rows   int64         // rows copied in all rounds together
	Tries  int           // attempts to fence the tenant off and make the new cluster its home
	Pause  time.Duration // time without a home: from the last attempt to fence to the commit of the new home
}

// These errors mean that Move has refused to start.
var (
	ErrInvalidTenant = errors.New("fleet: the name of the tenant is empty, or has a slash or a percent sign")
	ErrMoving        = errors.New("fleet: the tenant is being moved by another process")
	ErrNotHere       = errors.New("fleet: from is not the home of the tenant")
)

// ErrUnconfirmed is returned if a COMMIT did not wait for its standby, because a person or program
// canceled the wait. Call Move again.
var ErrUnconfirmed = errors.New("fleet: a standby has not confirmed the commit")

// Move moves a tenant to another cluster: from is its current home, and to becomes its new home. It
// returns after the old home has deleted the rows of the tenant. If Move fails or the process dies,
// call Move again with the same arguments. If the earlier Move has not reached Arrived, the new
// Move copies all rows again. Otherwise it only deletes the rows in the old home.
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

// move is the state of one Move. The fence, the lock that stops the tenant's transactions, has a
// connection of its own. The last changes are read on reader, in a snapshot that is taken after the
// fence.
type move struct {
	MoveConfig
	fromName, toName      string
	tenant                string
	report                *Report
	parts                 []part
	fence, reader, target *connection
}

// run runs all remaining stages. An advisory lock in both clusters prevents two simultaneous
// moves of a tenant.
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
		if err := m.listen(ctx); err != nil {
			return err
		}
		if err := m.copy(ctx); err != nil {
			return err
		}
		if err := m.cross(ctx, stage == Left); err != nil {
			return err
		}
	}
	return m.clean(ctx)
}

// list sets m.parts, the tables with rows of the tenant. The parameter states has the states of
// operations in progress other than running and parked.
func (m *move) list(ctx context.Context, states ...string) error {
	m.parts = partsOf(m.tenant, m.Tables, append(states, "running", "parked"))
	return describe(ctx, m.reader.Conn, m.parts)
}

// begin reads from both clusters how far an earlier Move got. It returns Arrived if the new home
// has committed, Left if only the old home has, and "" if neither has. If the states of the tenant
// in the two clusters fit none of these cases, begin returns ErrNotHere.
//
// In the cases Left and "", the old home still has all rows. begin deletes the rows that the
// earlier Move copied to the new home, because changes after that Move were not noted. Then it
// writes in the new home that the tenant is arriving.
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
	}
	if err := m.clear(ctx, m.target); err != nil {
		return "", err
	}
	_, err = m.target.Exec(ctx, `INSERT INTO fleet.tenants (tenant, state, cluster) VALUES ($1, 'arriving', $2)
		ON CONFLICT (tenant) DO UPDATE SET state = 'arriving', cluster = EXCLUDED.cluster`, m.tenant, m.fromName)
	if going {
		return Left, err
	}
	return "", err
}

// Rounds copy the changed rows until a round takes less than shortRound, or until there were
// maxRounds rounds. Then Move fences the tenant off.
const (
	shortRound = 300 * time.Millisecond
	maxRounds  = 4
)

// copy copies all rows and compares them, while the old home serves requests and records changed
// rows in fleet.changes. The following rounds copy the rows that have changed since the previous
// round.
func (m *move) copy(ctx context.Context) error {
	if err := m.between(ctx, func(from, to pgx.Tx) error { return m.copyAll(ctx, from, to) }, m.copied); err != nil {
		return err
	}
	m.reached(Compared)
	for range maxRounds {
		began := time.Now()
		if err := m.follow(ctx); err != nil {
			return err
		}
		if time.Since(began) < shortRound {
			break
		}
	}
	return nil
}

// copyAll copies and compares all parts, except the late parts, which are copied only when the
// tenant is fenced off.
func (m *move) copyAll(ctx context.Context, from, to pgx.Tx) error {
	for i := range m.parts {
		p := &m.parts[i]
		if p.late {
			continue
		}
		if p.name == operations {
			p.values = duringCopy
		}
		if err := m.copyPart(ctx, from, to, p); err != nil {
			return err
		}
		if err := compare(ctx, from, to, p); err != nil {
			return err
		}
	}
	return nil
}

// follow copies the rows that changed since the last round.
func (m *move) follow(ctx context.Context) error {
	return m.between(ctx, func(from, to pgx.Tx) error { return m.copyChanges(ctx, from, to, duringCopy) }, m.copied)
}

// copied ends a round: it commits in the new home, and deletes the notes of the changes that the
// round has copied.
func (m *move) copied(ctx context.Context, to pgx.Tx, snapshot string) error {
	if err := to.Commit(ctx); err != nil {
		return err
	}
	if err := m.forgetChanges(ctx, snapshot); err != nil {
		return err
	}
	m.report.Rounds++
	m.reached(Copied)
	return nil
}

// copyPart copies the rows of p and counts them in the report.
func (m *move) copyPart(ctx context.Context, from, to pgx.Tx, p *part) error {
	rows, err := copyRows(ctx, from, to, p)
	m.report.Rows += rows
	return err
}

// between begins two transactions: one reads a snapshot of the old home, and the other writes in
// the new home. It passes both to the function do. Then it passes the writing transaction and the
// text of the snapshot to the function commit, which must commit that transaction. If do fails, the
// writing transaction is rolled back.
func (m *move) between(ctx context.Context, do func(from, to pgx.Tx) error, commit func(ctx context.Context, to pgx.Tx, snapshot string) error) error {
	from, err := m.reader.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer from.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // the transaction only reads
	var snapshot string
	if err := from.QueryRow(ctx, `SELECT pg_current_snapshot()::text`).Scan(&snapshot); err != nil {
		return err
	}
	to, err := m.target.Begin(ctx)
	if err != nil {
		return err
	}
	defer to.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // fails only after the commit or an error of do
	if _, err := to.Exec(ctx, `SET LOCAL fleet.moving = 'on'`); err != nil {
		return err
	}
	if err := do(from, to); err != nil {
		return err
	}
	return commit(ctx, to, snapshot)
}

func (m *move) reached(s Stage) {
	if m.Progress != nil {
		m.Progress(s, m.report.Rows)
	}
}
