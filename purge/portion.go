package purge

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/txn"
)

// The time limits of the transaction of a portion: for waiting for a lock, for a statement, and for
// a client that stops responding.
const (
	lockLimit = 500 * time.Millisecond // applies to locks on the table; locked rows are skipped
	workLimit = 5 * time.Second
	idleLimit = 5 * time.Second
)

// deletion deletes the due rows in a range of blocks. First it locks the rows, and skips rows that
// are already locked, so that it never waits and two portions cannot deadlock. Then it evaluates
// the condition again, because the locked row may be a newer version of the row that the SELECT has
// found. All counts are from one snapshot.
const deletion = `WITH gone AS (
    DELETE FROM ONLY %[1]s AS r
    WHERE r.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
            SELECT r.ctid FROM ONLY %[1]s AS r
            WHERE r.ctid OPERATOR(pg_catalog.>=) $2::pg_catalog.tid AND r.ctid OPERATOR(pg_catalog.<) $3::pg_catalog.tid
              AND (%[2]s)
            FOR UPDATE SKIP LOCKED))
      AND (%[2]s)
    RETURNING %[3]s AS id
)%[4]s
SELECT (SELECT pg_catalog.count(*) FROM gone) AS deleted, ` + counts

// counting counts the rows that deletion would delete.
const counting = `SELECT 0 AS deleted, ` + counts

const counts = `pg_catalog.count(*) FILTER (WHERE %[2]s) AS due, pg_catalog.count(*) AS met,
       (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp())
        OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 AS microseconds
FROM ONLY %[1]s AS r
WHERE r.ctid OPERATOR(pg_catalog.>=) $2::pg_catalog.tid AND r.ctid OPERATOR(pg_catalog.<) $3::pg_catalog.tid`

// child deletes the rows of a child table that belong to the deleted rows. The LATERAL subquery
// makes the server look up the rows of each deleted row in the index of the child table, although
// LimitPortion discourages index scans. Without the subquery, the server would read the whole child
// table for each portion.
const child = `, child_%[1]d AS (DELETE FROM %[2]s AS c WHERE c.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT own.ctid FROM gone CROSS JOIN LATERAL (
        SELECT o.ctid FROM %[2]s AS o WHERE o.operation_id OPERATOR(pg_catalog.=) gone.id OFFSET 0) own)))`

// deletionOf returns the statement that deletes from a part of a table: a partition, or the table
// itself.
func deletionOf(t table, part *db.Part) *roundtrip.Statement {
	var children strings.Builder
	for i, relation := range t.children {
		fmt.Fprintf(&children, child, i, relation)
	}
	return statement(fmt.Sprintf(deletion, part.Quoted, t.due, cmp.Or(t.id, "1"), children.String()))
}

// countingOf returns the statement that counts in a part of a table.
func countingOf(t table, part *db.Part) *roundtrip.Statement {
	return statement(fmt.Sprintf(counting, part.Quoted, t.due))
}

func statement(sql string) *roundtrip.Statement {
	return roundtrip.New(roundtrip.Statement{
		SQL:     sql,
		Params:  []roundtrip.Param{roundtrip.PlainParam, roundtrip.PlainParam, roundtrip.PlainParam},
		Results: []int16{roundtrip.Text, roundtrip.Text, roundtrip.Text, roundtrip.Text},
	})
}

// portion is the work of one transaction: the blocks of a part in [from, to).
type portion struct {
	statement *roundtrip.Statement
	limits    db.LimitPortion
	keep      time.Duration
	from, to  int64
	waits     bool // its COMMIT waits for the disk and for synchronous standbys

	counts Counts
	took   time.Duration // by the server's clock
	done   bool
}

// Queue adds the statement to the round trip.
func (p *portion) Queue(trip *roundtrip.Trip) {
	trip.Add(p.statement, interval(p.keep), tid(p.from), tid(p.to))
}

// Read reads the counts from the answer.
func (p *portion) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) {
		deleted, due, met := int64(row.Int()), int64(row.Int()), int64(row.Int())
		p.counts = Counts{Deleted: deleted, Kept: met - due, Skipped: due - deleted, Pages: p.to - p.from}
		p.took = min(max(time.Duration(row.Int())*time.Microsecond, 0), workLimit) // the clock may have been changed
	})
}

var limits = db.LimitPortion{
	LockLimit: milliseconds(lockLimit), WorkLimit: milliseconds(workLimit), IdleLimit: milliseconds(idleLimit),
}

// delete deletes the portion and advances the sweep in one transaction.
func (p *portion) delete(ctx context.Context, engine *txn.Engine, sweeper db.Sweeper, to db.Position) (*db.AdvanceSweep, error) {
	bounded, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	requests := []txn.Request{p.limits, db.HurryPortion{}, p}
	if p.waits {
		requests = []txn.Request{p.limits, p}
	}
	tx, err := engine.Open(bounded, requests...)
	if err != nil {
		return nil, err
	}
	defer tx.Close()
	advance := &db.AdvanceSweep{
		Sweeper: sweeper, To: to,
		Walked: p.counts.Pages, Deleted: p.counts.Deleted, Kept: p.counts.Kept, Skipped: p.counts.Skipped,
	}
	return advance, tx.Commit(bounded, advance)
}

// count counts the rows that delete would delete.
func (p *portion) count(ctx context.Context, engine *txn.Engine) error {
	bounded, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	tx, err := engine.Open(bounded, p.limits, p)
	if err != nil {
		return err
	}
	tx.Close()
	p.counts.Deleted, p.counts.Skipped = p.counts.Skipped, 0
	return nil
}

// hurryRefused reports whether the server has rejected HurryPortion, which turns synchronous_commit
// off. Some managed clusters do not allow this.
func hurryRefused(err error) bool { return txn.HasCode(err, "0A000") }

// answerLimit is how long the server may take to answer. It is longer than workLimit.
const answerLimit = workLimit + 10*time.Second

// ask makes one round trip outside of a transaction, at the default isolation level of the
// database. At a strict level, runs that update the same row of idem.sweeps cause serialization
// failures, after which ask retries.
func ask(ctx context.Context, engine *txn.Engine, requests ...txn.Request) error {
	bounded, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	for pause := txn.RetryPause; ; {
		err := engine.Query(bounded, requests...)
		if !txn.Rerunnable(err) || txn.Sleep(bounded, pause.Next()) != nil {
			return err
		}
	}
}

// peek sends a request in a read-only transaction, with the time limits of a portion.
func peek(ctx context.Context, engine *txn.Engine, request txn.Request) error {
	bounded, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	reading := *engine
	reading.Options = readsOnly
	tx, err := reading.Open(bounded, limits, request)
	if err == nil {
		tx.Close()
	}
	return err
}

// These options set the isolation level, because at a stricter default level of the database a
// portion would fail because of other sessions. They do not request READ WRITE, because a replica
// would reject it with an error that does not say that the server is a replica.
var (
	deleting  = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	readsOnly = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}
)

func tid(block int64) []byte { return fmt.Appendf(nil, "(%d,0)", block) }

func interval(d time.Duration) []byte {
	return append(strconv.AppendInt(nil, d.Microseconds(), 10), " microseconds"...)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
