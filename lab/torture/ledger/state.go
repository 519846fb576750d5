package ledger

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/lab/torture/history"
)

// Record is a row of idem.records. Times are in microseconds.
type Record struct {
	ExecutionID string `json:"i"`
	Scope       string `json:"s"`
	Key         string `json:"k"`
	State       string `json:"state"`
	Digest      string `json:"d"`
	Created     int64  `json:"cr"`
	Completed   int64  `json:"co"`
	Expires     int64  `json:"ex"`
}

// Row is a line of the file with the final state of the database. Exactly one of its pointers is
// set.
type Row struct {
	Shard   uint8    `json:"p"`
	Effect  *Effect  `json:"effect,omitempty"`
	Record  *Record  `json:"record,omitempty"`
	Purged  *Purged  `json:"purged,omitempty"`
	Outer   *Outer   `json:"outer,omitempty"`
	Finding *Finding `json:"finding,omitempty"`
}

// Take writes the state of the database to a file, from one snapshot.
func Take(ctx context.Context, conn *pgx.Conn, to *history.Writer) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		found, err := find(ctx, tx)
		if err != nil {
			return err
		}
		for _, f := range found {
			to.Append(Row{Shard: history.ShardOf(f.Scope, f.Key), Finding: &f})
		}
		for _, take := range []func(context.Context, pgx.Tx, *history.Writer) error{takeEffects, takeRecords, takePurged, takeOuters} {
			if err := take(ctx, tx, to); err != nil {
				return err
			}
		}
		return nil
	})
}

func takeEffects(ctx context.Context, tx pgx.Tx, to *history.Writer) error {
	rows, err := tx.Query(ctx, `select execution_id::text, op, scope, key, payload, digest, ttl_us, noted_at from torture.effects`)
	if err != nil {
		return err
	}
	var e Effect
	var op int64
	var noted time.Time
	_, err = pgx.ForEachRow(rows, []any{&e.ExecutionID, &op, &e.Scope, &e.Key, &e.Payload, &e.Digest, &e.TTL, &noted}, func() error {
		e.Op, e.Noted = history.Op(op), noted.UnixMicro()
		to.Append(Row{Shard: history.ShardOf(e.Scope, e.Key), Effect: &e})
		return nil
	})
	return err
}

func takeRecords(ctx context.Context, tx pgx.Tx, to *history.Writer) error {
	rows, err := tx.Query(ctx, `select execution_id::text, scope, key, hash, state::text, coalesce(status, 0), header::text, body,
		coalesce(sealed_by, ''), created_at, coalesce(completed_at, 'epoch'), expires_at from idem.records`)
	if err != nil {
		return err
	}
	var r Record
	var stored db.Record
	var hash []byte
	var header *string
	var created, completed, expires time.Time
	into := []any{&r.ExecutionID, &r.Scope, &r.Key, &hash, &r.State, &stored.Status, &header, &stored.Body,
		&stored.SealedBy, &created, &completed, &expires}
	_, err = pgx.ForEachRow(rows, into, func() error {
		stored.ExecutionID, stored.State, stored.Header, stored.Closed = r.ExecutionID, db.State(r.State), nil, true
		if header != nil {
			if err := json.Unmarshal([]byte(*header), &stored.Header); err != nil {
				return err
			}
		}
		r.Digest = unreadable
		if err := open(&stored, r.Scope, r.Key, [32]byte(hash)); err == nil {
			r.Digest = Digest(idem.Response{Status: stored.Status, Header: stored.Header, Body: stored.Body})
		}
		r.Created, r.Completed, r.Expires = created.UnixMicro(), completed.UnixMicro(), expires.UnixMicro()
		to.Append(Row{Shard: history.ShardOf(r.Scope, r.Key), Record: &r})
		return nil
	})
	return err
}

func takeOuters(ctx context.Context, tx pgx.Tx, to *history.Writer) error {
	rows, err := tx.Query(ctx, `select op, scope, key, part from torture.outers`)
	if err != nil {
		return err
	}
	var o Outer
	var op int64
	_, err = pgx.ForEachRow(rows, []any{&op, &o.Scope, &o.Key, &o.Part}, func() error {
		o.Op = history.Op(op)
		to.Append(Row{Shard: history.ShardOf(o.Scope, o.Key), Outer: &o})
		return nil
	})
	return err
}
