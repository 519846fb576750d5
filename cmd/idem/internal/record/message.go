package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Message is a row of idem.outbox or idem.delayed, without payload and headers.
type Message struct {
	Seq              int64
	ID               string
	Topic, Key, Type string
	AddedAt          time.Time
	Held             bool
	Delayed          bool       // not due before NextAt
	Attempts         *int       // nil for a message that only waits behind another
	NextAt           *time.Time // time of the next attempt
	Class            string

	Now time.Time // by the clock of the database
}

// MessageFilter selects messages. Zero fields select all messages of the outbox.
type MessageFilter struct {
	Topic string
	State string // waiting, held, delayed, or empty for waiting and held
	Older time.Duration
	After int64 // only messages with a greater sequence number
	Limit int
}

// Messages returns messages of the outbox by sequence number. The query reads the two halves of the
// primary key, held and waiting, each in order, and merges them.
func Messages(ctx context.Context, tx pgx.Tx, f MessageFilter) ([]Message, error) {
	const side = `(SELECT * FROM idem.outbox WHERE held = %HELD AND seq > $1 AND ($2 = '' OR aggregatetype = $2)
		AND ($3 = 0 OR created_at < clock_timestamp() - make_interval(secs => $3)) AND $4 <> '%OTHER' ORDER BY seq LIMIT $5)`
	rows, err := tx.Query(ctx, `SELECT seq, id::text, aggregatetype, aggregateid, type, created_at, held, attempts, next_at, coalesce(class, ''), clock_timestamp()
		FROM (`+replaced(side, "%HELD", "false", "%OTHER", "held")+" UNION ALL "+replaced(side, "%HELD", "true", "%OTHER", "waiting")+`) AS m
		ORDER BY seq LIMIT $5`, f.After, f.Topic, f.Older.Seconds(), f.State, f.Limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m Message, err error) {
		err = row.Scan(&m.Seq, &m.ID, &m.Topic, &m.Key, &m.Type, &m.AddedAt, &m.Held, &m.Attempts, &m.NextAt, &m.Class, &m.Now)
		return m, err
	})
}

// DelayedMessages returns messages that are not due yet, by the time at which they are due. It
// ignores f.After.
func DelayedMessages(ctx context.Context, tx pgx.Tx, f MessageFilter) ([]Message, error) {
	rows, err := tx.Query(ctx, `SELECT seq, id::text, aggregatetype, aggregateid, type, created_at, not_before, clock_timestamp() FROM idem.delayed
		WHERE ($1 = '' OR aggregatetype = $1) AND ($2 = 0 OR created_at < clock_timestamp() - make_interval(secs => $2))
		ORDER BY not_before, seq LIMIT $3`, f.Topic, f.Older.Seconds(), f.Limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m Message, err error) {
		m.Delayed = true
		err = row.Scan(&m.Seq, &m.ID, &m.Topic, &m.Key, &m.Type, &m.AddedAt, &m.NextAt, &m.Now)
		return m, err
	})
}

// Lanes is the number of lanes of the outbox. One relay owns a lane at a time.
const Lanes = 16

// present is a FROM clause with the rows of idem.relays whose process runs.
const present = `idem.relays r WHERE r.instance IN (
		SELECT l.objid::int8::int4 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = 1768187247::oid
		  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		UNION ALL
		SELECT instance FROM idem.leases WHERE expires_at > clock_timestamp())`

// Relays returns the number of lanes that running relays own.
func Relays(ctx context.Context, tx pgx.Tx) (lanes int, err error) {
	err = tx.QueryRow(ctx, "SELECT count(DISTINCT lane) FROM "+present).Scan(&lanes)
	return lanes, err
}

// Orphan is a topic with waiting messages whose relay does not run.
type Orphan struct {
	Topic string
	Relay string // the relay of the topic; empty for the relay without a name
}

// Orphans returns up to ten topics of waiting messages whose relay does not run. It examines only
// the oldest messages. It returns none if no relay has topics of its own.
func Orphans(ctx context.Context, tx pgx.Tx) ([]Orphan, error) {
	rows, err := tx.Query(ctx, `WITH own AS (SELECT t.relay, unnest(t.topics) AS topic FROM idem.relay_topics t),
		waiting AS (SELECT DISTINCT m.aggregatetype AS topic FROM (
			(SELECT aggregatetype FROM idem.outbox WHERE held = false ORDER BY seq LIMIT 10000) UNION ALL
			(SELECT aggregatetype FROM idem.outbox WHERE held = true ORDER BY seq LIMIT 10000) UNION ALL
			(SELECT aggregatetype FROM idem.delayed WHERE not_before <= (SELECT clock_timestamp()) ORDER BY not_before LIMIT 10000)) m)
		SELECT w.topic, coalesce(o.relay, '') FROM waiting w
		LEFT JOIN own o ON CASE WHEN right(o.topic, 1) = '*' THEN starts_with(w.topic, left(o.topic, -1)) ELSE w.topic = o.topic END
		WHERE EXISTS (SELECT FROM own) AND NOT EXISTS (SELECT FROM `+present+` AND r.relay = coalesce(o.relay, ''))
		ORDER BY 1 LIMIT 10`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Orphan])
}

// Oldest returns the time since the oldest message became due, or 0 if no message is due. A delayed
// message counts from the time at which it is due.
func Oldest(ctx context.Context, tx pgx.Tx) (age time.Duration, err error) {
	var seconds float64
	err = tx.QueryRow(ctx, `SELECT coalesce(extract(epoch FROM clock_timestamp() - least(
		(SELECT not_before FROM idem.delayed ORDER BY not_before LIMIT 1),
		(SELECT created_at FROM idem.outbox WHERE held = false ORDER BY seq LIMIT 1),
		(SELECT min(created_at) FROM (SELECT created_at FROM idem.outbox WHERE held = true ORDER BY seq LIMIT 10000) AS held))), 0)::float8`).Scan(&seconds)
	return max(time.Duration(seconds*float64(time.Second)), 0), err
}
