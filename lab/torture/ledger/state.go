package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Grace is how long a purge keeps an expired record.
const Grace = 100 * time.Millisecond

// State is the state of the database at the end of a run.
type State struct {
	Effects  []*Effect
	Records  []*Record
	Purged   []*Record
	Outers   []*Outer
	Findings []rule.Violation // that the database shows by itself
}

// Record is a row of idem.records, or one that was deleted from there. Times are in microseconds.
type Record struct {
	ExecutionID, Scope, Key, State string
	Created, Completed, Expires    int64
	Digest                         string `db:"-"` // not of a deleted record
}

// Take returns the state of the database, from one snapshot.
func Take(ctx context.Context, conn *pgx.Conn) (*State, error) {
	s := &State{}
	return s, Snapshot(ctx, conn, func(tx pgx.Tx) (err error) {
		if s.Findings, err = find(ctx, tx); err != nil {
			return err
		}
		if s.Effects, err = Rows[Effect](ctx, tx, `SELECT execution_id::text, op, scope, key, payload, digest, ttl_us, `+micros("noted_at")+` FROM torture.effects`); err != nil {
			return err
		}
		if s.Outers, err = Rows[Outer](ctx, tx, `SELECT op, scope, key, part FROM torture.outers`); err != nil {
			return err
		}
		const purged = `SELECT execution_id::text, scope, key, state, `
		times := micros("created_at") + ", " + micros("coalesce(completed_at, 'epoch')") + ", " + micros("expires_at")
		if s.Purged, err = Rows[Record](ctx, tx, purged+times+` FROM torture.purged`); err != nil {
			return err
		}
		s.Records, err = records(ctx, tx, times)
		return err
	})
}

// Snapshot calls take with a transaction that has one snapshot.
func Snapshot(ctx context.Context, conn *pgx.Conn, take func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, take)
}

// Rows returns the rows of a query, whose columns are the fields of T in their order.
func Rows[T any](ctx context.Context, tx pgx.Tx, query string, args ...any) ([]*T, error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[T])
}

func micros(column string) string { return "(extract(epoch FROM " + column + ") * 1000000)::int8" }

// records returns the rows of idem.records, with the digests of their responses.
func records(ctx context.Context, tx pgx.Tx, times string) ([]*Record, error) {
	rows, err := tx.Query(ctx, `SELECT execution_id::text, scope, key, state::text, `+times+`, hash, coalesce(status, 0), header::text, body,
		coalesce(sealed_by, '') FROM idem.records`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Record, error) {
		r, stored := &Record{}, &db.Record{Closed: true}
		var hash []byte
		var header *string
		if err := row.Scan(&r.ExecutionID, &r.Scope, &r.Key, &r.State, &r.Created, &r.Completed, &r.Expires,
			&hash, &stored.Status, &header, &stored.Body, &stored.SealedBy); err != nil {
			return nil, err
		}
		stored.ExecutionID, stored.State = r.ExecutionID, db.State(r.State)
		if header != nil {
			if err := json.Unmarshal([]byte(*header), &stored.Header); err != nil {
				return nil, err
			}
		}
		r.Digest = unreadable
		if err := open(stored, r.Scope, r.Key, [32]byte(hash)); err == nil {
			r.Digest = Digest(idem.Response{Status: stored.Status, Header: stored.Header, Body: stored.Body})
		}
		return r, nil
	})
}

// Digest returns a digest of the status, the header and the body of a response.
func Digest(r idem.Response) string {
	if len(r.Header) == 0 {
		r.Header = nil
	}
	if len(r.Body) == 0 {
		r.Body = nil
	}
	encoded, err := json.Marshal(r) // sorts the header and encodes the body as base64
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:8])
}

// Clock returns SQL for a time of the database by the clock of package history, in nanoseconds. $1
// is the value of Offset. The database runs on this machine, so both clocks differ by a constant.
func Clock(column string) string {
	return "((extract(epoch FROM " + column + ") * 1000000)::int8 * 1000 - $1::int8)"
}

// Offset returns the difference between the time of day and the clock of package history.
func Offset() int64 { return time.Now().UnixNano() - int64(history.Now()) }
