package idem

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
)

// call is one Do or DoTx from its arguments to its answer.
type call struct {
	options
	pool        *pgxpool.Pool
	scope, key  string
	hash        Hash
	fn          func(pgx.Tx) (Response, error)
	operationID string // the same for every attempt of this call: it tells our own execution from somebody else's
	values      values
	claimedAt   time.Time // when the attempt under way claimed the key, by the database's clock

	flight   flight          // of which this call is the leader, if it leads
	traced   context.Context // the observer's own
	started  time.Time
	waited   time.Duration
	waiting  bool
	attempts int
	age      time.Duration
}

func newCall(scope, key string, hash Hash, fn func(pgx.Tx) (Response, error), opts []Option) (*call, error) {
	c := &call{scope: scope, key: key, hash: hash, fn: fn, started: time.Now()}
	if err := c.options.set(opts); err != nil {
		return c, err
	}
	if fn == nil {
		return c, errors.New("idem: fn is nil")
	}
	if err := checkNames(scope, key); err != nil {
		return c, err
	}
	c.operationID = newOperationID()
	c.values = c.encode()
	return c, nil
}

// newOperationID returns a random UUID. It comes from the client because the call must know it even if it never hears
// from the server again.
func newOperationID() string {
	var id [16]byte
	rand.Read(id[:]) // never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[:], id[:4])
	hex.Encode(s[9:], id[4:6])
	hex.Encode(s[14:], id[6:8])
	hex.Encode(s[19:], id[8:10])
	hex.Encode(s[24:], id[10:])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// lead brings the key to an answer: it claims and executes, or finds the record, or gives up waiting for another holder.
func (c *call) lead(ctx context.Context) (record, error) {
	poll, again := pollPause, retryPause
	for retries, dead := c.retries, int32(0); ; {
		r, fate, err := c.attempt(ctx)
		if fate == fateUnknown {
			r, fate, err = c.resolve(ctx, err)
		}
		if fate == fateDead {
			// After a restart of the server all connections of the pool may be dead. That is no failure of the call, and no
			// reason to pause: the next connection is another one.
			if dead++; dead <= c.pool.Stat().MaxConns() && ctx.Err() == nil {
				c.traceEvent(EventRetried, err)
				continue
			}
			fate = fateAgain
		}
		switch fate {
		case fateDone, fateLive:
			return r, nil
		case fateFailed:
			return r, err
		case fateBusy:
			if err := c.waitForHolder(ctx, poll.next()); err != nil {
				return r, err
			}
		case fateAgain:
			if retries == 0 || ctx.Err() != nil {
				return r, err
			}
			retries--
			c.traceEvent(EventRetried, err)
			if sleep(ctx, again.next()) != nil {
				return r, err
			}
		}
	}
}

// resolve asks the record what became of a COMMIT that was not acknowledged because of cause. It goes on, within its
// bound, after the end of the caller's context: the caller is better served by the truth than by speed.
func (c *call) resolve(ctx context.Context, cause error) (record, fate, error) {
	c.traceEvent(EventOutcomeUnknown, cause)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.limits.resolve)
	defer cancel()
	for pause := pollPause; ; {
		r, fate, err := c.probe(bounded)
		switch {
		case fate == fateLive && r.ours:
			c.traceEvent(EventResolvedCommitted, nil)
			return r, fateLive, nil
		case (fate == fateLive || fate == fateFree) && c.mayHaveExpired(r):
			return record{}, fateFailed, &OutcomeUnknownError{OperationID: c.operationID, Err: cause}
		case fate == fateLive:
			c.traceEvent(EventResolvedRolledBack, nil)
			return r, fateLive, nil
		case fate == fateFree:
			c.traceEvent(EventResolvedRolledBack, nil)
			return record{}, fateAgain, cause
		case fate == fateFailed && bounded.Err() == nil:
			return record{}, fateFailed, &OutcomeUnknownError{OperationID: c.operationID, Err: errors.Join(cause, err)}
		}
		if sleep(bounded, pause.next()) != nil {
			return record{}, fateFailed, &OutcomeUnknownError{OperationID: c.operationID, Err: cause}
		}
	}
}

// mayHaveExpired reports whether r, which is not ours, holds the key so late that a record of the attempt under way, had it
// been committed, may have expired before and been taken over: then nothing tells any more what became of it.
func (c *call) mayHaveExpired(r record) bool {
	held := r.completedAt
	if held.IsZero() {
		held = r.loadedAt
	}
	return !held.Before(c.claimedAt.Add(c.ttl))
}

// runFn gives the transaction to fn. It returns fn's error, or the one that follows from the state in which fn, which
// returned none or a rejection, left the transaction.
func (c *call) runFn(conn *pgx.Conn, guard *guardTx) (Response, error) {
	resp, err := c.fn(guard)
	idle := guard.turn.end()
	_, rejected := errors.AsType[*rejection](err)
	wellMeant := err == nil || rejected
	switch {
	case !idle && wellMeant:
		return resp, fmt.Errorf("%w: a goroutine of fn is still using the tx", ErrTxAborted)
	case !idle:
		return resp, err
	case guard.turn.endedByFn && wellMeant:
		return resp, ended("fn called Commit or Rollback on the tx", err)
	case !conn.IsClosed() && !conn.PgConn().IsBusy() && conn.PgConn().TxStatus() == 'I':
		return resp, ended("a statement of fn did", err)
	case err == nil:
		err = unfit(conn)
	}
	return resp, err
}

// unfit tells why the transaction, as fn left it, cannot be completed.
func unfit(conn *pgx.Conn) error {
	switch {
	case conn.IsClosed():
		return fmt.Errorf("%w: its connection was lost", ErrTxAborted)
	case conn.PgConn().IsBusy():
		return fmt.Errorf("%w: rows or batch results were left open", ErrTxAborted)
	case conn.PgConn().TxStatus() == 'E':
		return fmt.Errorf("%w: fn ignored the error of a statement", ErrTxAborted)
	}
	return nil
}

// answer turns the live record of the key into what the caller is told.
func (c *call) answer(r record) (Result, error) {
	switch {
	case !r.sameHash:
		return Result{}, &MismatchError{Key: abridged(c.key), CreatedAt: r.createdAt}
	case r.state == processing:
		return Result{}, fmt.Errorf("%w: an earlier fn for %s did, without a response; see to its effect, then remove the record",
			ErrTxEnded, abridged(c.key))
	}
	if !r.ours {
		c.age = r.loadedAt.Sub(r.createdAt)
	}
	return r.result(), nil
}

// values are the parameters of the statements as they travel.
type values struct{ scope, key, operationID, ttl, keep []byte }

func (c *call) encode() values {
	buf := make([]byte, 0, len(c.scope)+len(c.key)+len(c.operationID)+2*20)
	cut := func(grown []byte) []byte {
		piece := grown[len(buf):len(grown):len(grown)]
		buf = grown
		return piece
	}
	return values{
		scope:       cut(append(buf, c.scope...)),
		key:         cut(append(buf, c.key...)),
		operationID: cut(append(buf, c.operationID...)),
		ttl:         cut(strconv.AppendInt(buf, c.ttl.Microseconds(), 10)),
		keep:        cut(strconv.AppendInt(buf, c.keep().Microseconds(), 10)),
	}
}

// addClaim adds the claim and the load that follows it.
func (c *call) addClaim(trip *trip) {
	v := &c.values
	trip.query(claimStatement, v.scope, v.key, c.hash[:], v.operationID, v.keep)
	c.addLoad(trip)
}

func (c *call) addLoad(trip *trip) {
	v := &c.values
	trip.query(loadStatement, c.hash[:], v.scope, v.key, v.operationID)
}

// addHolds adds the question whether the transaction is still the one that claimed.
func (c *call) addHolds(trip *trip) {
	trip.query(holdsStatement, c.values.scope, c.values.key, c.values.operationID)
}

func (c *call) readClaim(trip *trip) record {
	claimed := trip.skip().RowsAffected() == 1
	r := c.readLoad(trip)
	r.claimed = claimed
	if claimed && !r.ours && trip.err == nil {
		trip.err = errors.New("idem: the record was inserted but cannot be read: is row-level security or a trigger in the way?")
	}
	return r
}

func (c *call) readLoad(trip *trip) record {
	answer := trip.next()
	if answer == nil {
		return record{}
	}
	r, err := readRecord(answer, trip.conn.TypeMap(), c.operationID)
	if err != nil && trip.err == nil {
		trip.err = err
	}
	return r
}

// addComplete adds the statement that records a response. joined says that the claim may have been made under a savepoint.
func (c *call) addComplete(trip *trip, resp Response, header []byte, state db.IdemRecordState, joined bool) {
	v := &c.values
	trip.query(completeStatement,
		[]byte(state), strconv.AppendInt(nil, int64(resp.Status), 10), header, resp.Body, v.ttl, v.keep,
		v.scope, v.key, v.operationID, strconv.AppendBool(nil, joined))
}

func (c *call) readComplete(trip *trip, r *record) {
	answer := trip.next()
	if answer == nil {
		return
	}
	if answer.NextRow() {
		row := row{values: answer.Values(), fields: answer.FieldDescriptions(), types: trip.conn.TypeMap()}
		r.completedAt, r.expiresAt = row.time(), row.time()
	}
	if _, err := answer.Close(); err != nil {
		trip.err = err
	}
}
