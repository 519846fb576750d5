package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Message is a row of idem.outbox or idem.delayed, without payload and headers.
type Message struct {
	Seq      int64      `json:"seq"`
	ID       string     `json:"id"`
	Topic    string     `json:"topic"`
	Key      string     `json:"key"`
	Type     string     `json:"type"`
	AddedAt  time.Time  `json:"added_at"`
	State    string     `json:"state"`    // waiting, held or delayed
	Attempts *int       `json:"attempts"` // nil for a message that has not failed
	NextAt   *time.Time `json:"next_at"`  // the next attempt, or when a delayed message is due
	Class    string     `json:"class,omitempty"`

	Now time.Time `json:"-"` // the clock of the database
}

// MessageFilter selects messages. An empty field selects all.
type MessageFilter struct {
	Topic string
	State string // waiting, held, delayed, or empty for waiting and held
	Older time.Duration
	After int64 // only messages after this sequence number
	Limit int
}

// Messages returns messages of the outbox in the order in which they were added. The index is on
// (held, seq). So the query reads up to Limit waiting and up to Limit held messages in the order of
// the index, and merges the two.
func Messages(ctx context.Context, tx pgx.Tx, f MessageFilter) ([]Message, error) {
	const side = `(SELECT * FROM idem.outbox WHERE held = %HELD AND seq > $1 AND ($2 = '' OR aggregatetype = $2)
		AND ($3 = 0 OR created_at < clock_timestamp() - make_interval(secs => $3)) AND $4 <> '%OTHER' ORDER BY seq LIMIT $5)`
	rows, _ := tx.Query(ctx, `SELECT seq, id::text, aggregatetype, aggregateid, type, created_at, CASE WHEN held THEN 'held' ELSE 'waiting' END, attempts, next_at, coalesce(class, ''), clock_timestamp()
		FROM (`+replaced(side, "%HELD", "false", "%OTHER", "held")+" UNION ALL "+replaced(side, "%HELD", "true", "%OTHER", "waiting")+`) AS m
		ORDER BY seq LIMIT $5`, f.After, f.Topic, f.Older.Seconds(), f.State, f.Limit) // CollectRows returns the error
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m Message, err error) {
		err = row.Scan(&m.Seq, &m.ID, &m.Topic, &m.Key, &m.Type, &m.AddedAt, &m.State, &m.Attempts, &m.NextAt, &m.Class, &m.Now)
		return m, err
	})
}

// DelayedMessages returns messages that are not due yet, in the order in which they become due. It
// ignores f.After.
func DelayedMessages(ctx context.Context, tx pgx.Tx, f MessageFilter) ([]Message, error) {
	rows, _ := tx.Query(ctx, `SELECT seq, id::text, aggregatetype, aggregateid, type, created_at, not_before, clock_timestamp() FROM idem.delayed
		WHERE ($1 = '' OR aggregatetype = $1) AND ($2 = 0 OR created_at < clock_timestamp() - make_interval(secs => $2))
		ORDER BY not_before, seq LIMIT $3`, f.Topic, f.Older.Seconds(), f.Limit) // CollectRows returns the error
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m Message, err error) {
		m.State = "delayed"
		err = row.Scan(&m.Seq, &m.ID, &m.Topic, &m.Key, &m.Type, &m.AddedAt, &m.NextAt, &m.Now)
		return m, err
	})
}

// Lanes is the number of lanes of the outbox. One relay at a time owns a lane.
const Lanes = 16

// present is the FROM clause for the lanes that running processes own. A process is running if it
// holds the advisory lock of its instance, or has a lease that has not expired.
const present = `idem.relays r WHERE r.instance IN (
		SELECT l.objid::int8::int4 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = 1768187247::oid
		  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		UNION ALL
		SELECT instance FROM idem.leases WHERE expires_at > clock_timestamp())`

// Relays returns how many lanes running processes own.
func Relays(ctx context.Context, tx pgx.Tx) (lanes int, err error) {
	err = tx.QueryRow(ctx, "SELECT count(DISTINCT lane) FROM "+present).Scan(&lanes)
	return lanes, err
}

// Orphan is a topic with waiting messages that no running relay publishes.
type Orphan struct {
	Topic string
	// Relay owns the topic. It is empty if no relay does and the unnamed relay does not run.
	Relay string
}

// Orphans returns up to 10 topics with waiting messages that no running relay publishes. It scans
// the oldest messages only. It returns none if no relay has topics of its own. A topic pattern that
// ends in "*" matches a prefix.
func Orphans(ctx context.Context, tx pgx.Tx) ([]Orphan, error) {
	rows, _ := tx.Query(ctx, `WITH own AS (SELECT t.relay, unnest(t.topics) AS topic FROM idem.relay_topics t),
		waiting AS (SELECT DISTINCT m.aggregatetype AS topic FROM (
			(SELECT aggregatetype FROM idem.outbox WHERE held = false ORDER BY seq LIMIT 10000) UNION ALL
			(SELECT aggregatetype FROM idem.outbox WHERE held = true ORDER BY seq LIMIT 10000) UNION ALL
			(SELECT aggregatetype FROM idem.delayed WHERE not_before <= (SELECT clock_timestamp()) ORDER BY not_before LIMIT 10000)) m)
		SELECT w.topic, coalesce(o.relay, '') FROM waiting w
		LEFT JOIN own o ON CASE WHEN right(o.topic, 1) = '*' THEN starts_with(w.topic, left(o.topic, -1)) ELSE w.topic = o.topic END
		WHERE EXISTS (SELECT FROM own) AND NOT EXISTS (SELECT FROM `+present+` AND r.relay = coalesce(o.relay, ''))
		ORDER BY 1 LIMIT 10`) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Orphan])
}

// Oldest returns the age of the oldest message that could have been published. A delayed message
// counts from when it is due. Oldest returns 0 if there is no such message.
func Oldest(ctx context.Context, tx pgx.Tx) (age time.Duration, err error) {
	var seconds float64
	err = tx.QueryRow(ctx, `SELECT coalesce(extract(epoch FROM clock_timestamp() - least(
		(SELECT not_before FROM idem.delayed ORDER BY not_before LIMIT 1),
		(SELECT created_at FROM idem.outbox WHERE held = false ORDER BY seq LIMIT 1),
		(SELECT min(created_at) FROM (SELECT created_at FROM idem.outbox WHERE held = true ORDER BY seq LIMIT 10000) AS held))), 0)::float8`).Scan(&seconds)
	return max(time.Duration(seconds*float64(time.Second)), 0), err
}
