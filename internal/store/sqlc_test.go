package store

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/internal/db"
)

// askSQLC makes a request by the code that sqlc generates.
func askSQLC(ctx context.Context, conn *pgx.Conn, r request) error {
	q := db.New(conn)
	var err error
	switch r := r.(type) {
	case *Claim:
		err = claimBySQLC(ctx, q, r)
	case *TakeOver:
		var row db.TakeOverRow
		row, err = q.TakeOver(ctx, db.TakeOverParams{
			Scope: string(r.Key.scope), Key: string(r.Key.key), Hash: r.Key.hash, OperationID: r.Key.OperationID,
			Ttl: interval(r.Key), Patience: patience, Lock: pgtype.Int8{Int64: r.Key.Lock, Valid: true},
		})
		r.Claimed, r.CreatedAt, r.ExpiresAt, r.Previous = err == nil, timeOf(row.CreatedAt), timeOf(row.ExpiresAt), row.Previous
	case *Load:
		var row db.LoadRow
		row, err = q.Load(ctx, db.LoadParams{
			Hash: r.Key.hash, OperationID: r.Key.OperationID, Scope: string(r.Key.scope), Key: string(r.Key.key)})
		header, headerErr := decodeHeader(row.Header)
		r.Found, err = err == nil, errors.Join(err, headerErr)
		r.Record = Record{
			SameHash: row.SameHash, OperationID: row.OperationID, State: State(row.State), Status: int(row.Status),
			Header: header, Body: row.Body, SealedBy: row.SealedBy, Closed: r.Found, CreatedAt: timeOf(row.CreatedAt), CompletedAt: timeOf(row.CompletedAt),
			ExpiresAt: timeOf(row.ExpiresAt), LoadedAt: timeOf(row.LoadedAt),
		}
	case *Complete:
		var row db.CompleteRow
		row, err = q.Complete(ctx, db.CompleteParams{
			Scope: string(r.Key.scope), Key: string(r.Key.key), OperationID: r.Key.OperationID, Ttl: interval(r.Key),
			State: string(r.State), Status: int32(r.Status), Header: r.Header, Body: r.Body,
			SealedBy: pgtype.Text{String: r.SealedBy, Valid: r.SealedBy != ""},
		})
		r.Recorded, r.CompletedAt, r.ExpiresAt = err == nil, timeOf(row.CompletedAt), timeOf(row.ExpiresAt)
	case *Live:
		var row db.LiveRow
		row, err = q.Live(ctx, db.LiveParams{Scope: r.Scope, Key: r.Key})
		r.Found = err == nil
		r.Record = Record{State: State(row.State), OperationID: row.OperationID, CreatedAt: timeOf(row.CreatedAt),
			CompletedAt: timeOf(row.CompletedAt), ExpiresAt: timeOf(row.ExpiresAt)}
	case *Holds:
		r.Held, err = q.Holds(ctx, r.Key.OperationID)
	case *Holder:
		var row db.HolderRow
		row, err = q.Holder(ctx, db.HolderParams{LockHigh: int64(uint64(r.Lock) >> 32), LockLow: int64(uint32(r.Lock))})
		r.Held, r.Since = row.Held, timeOf(row.Since)
	case Calm:
		err = q.Calm(ctx)
	case Reclaim:
		err = q.Reclaim(ctx, r.OperationID)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

func claimBySQLC(ctx context.Context, q *db.Queries, c *Claim) error {
	k := c.Key
	if !c.AtOnce {
		row, err := q.Claim(ctx, db.ClaimParams{
			Scope: string(k.scope), Key: string(k.key), Hash: k.hash, OperationID: k.OperationID,
			Ttl: interval(k), Lock: pgtype.Int8{Int64: k.Lock, Valid: true},
		})
		c.Claimed, c.CreatedAt, c.ExpiresAt = err == nil, timeOf(row.CreatedAt), timeOf(row.ExpiresAt)
		return err
	}
	row, err := q.ClaimAtOnce(ctx, db.ClaimAtOnceParams{
		Scope: string(k.scope), Key: string(k.key), Hash: k.hash, OperationID: k.OperationID, Ttl: interval(k),
		Patience: patience, Lock: pgtype.Int8{Int64: k.Lock, Valid: true}, MaxLocks: MaxLocks,
	})
	c.Claimed, c.CreatedAt, c.ExpiresAt, c.Previous = err == nil, timeOf(row.CreatedAt), timeOf(row.ExpiresAt), row.Previous
	return err
}

// interval is the TTL of a key, read back from how it travels.
func interval(k *Key) pgtype.Interval {
	digits := k.ttl[:len(k.ttl)-len(" microseconds")]
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return pgtype.Interval{Microseconds: n, Valid: err == nil}
}

func timeOf(sent []byte) time.Time {
	if sent == nil {
		return time.Time{}
	}
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(binary.BigEndian.Uint64(sent)) * time.Microsecond)
}
