package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Reach is the maximum number of messages or operations that one query scans.
const Reach = 10_000

// Topic is the backlog of a topic in the outbox.
type Topic struct {
	Name          string
	Waiting, Held int64
	Oldest        time.Duration // the age of the oldest message that could have been published
}

// Topics returns up to limit topics that have messages to publish, the topic with the oldest
// message first. It scans up to Reach messages of each kind: waiting, held, and delayed messages
// that are due. partly reports whether the outbox may have more messages than were scanned.
func Topics(ctx context.Context, tx pgx.Tx, limit int) (topics []Topic, partly bool, err error) {
	rows, err := tx.Query(ctx, `SELECT topic, count(*) FILTER (WHERE NOT held), count(*) FILTER (WHERE held),
			greatest(extract(epoch FROM clock_timestamp() - min(since)), 0)::float8, sum(count(*)) OVER ()::int8
		FROM (
			(SELECT aggregatetype AS topic, false AS held, created_at AS since FROM idem.outbox WHERE held = false ORDER BY seq LIMIT $1) UNION ALL
			(SELECT aggregatetype, true, created_at FROM idem.outbox WHERE held = true ORDER BY seq LIMIT $1) UNION ALL
			(SELECT aggregatetype, false, not_before FROM idem.delayed WHERE not_before <= (SELECT clock_timestamp()) ORDER BY not_before LIMIT $1)) AS m
		GROUP BY topic ORDER BY min(since), topic LIMIT $2`, int64(Reach), int64(limit))
	if err != nil {
		return nil, false, err
	}
	var looked int64
	topics, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Topic, err error) {
		var seconds float64
		err = row.Scan(&t.Name, &t.Waiting, &t.Held, &seconds, &looked)
		t.Oldest = time.Duration(seconds * float64(time.Second))
		return t, err
	})
	return topics, looked >= Reach, err
}

// Relay is a relay that has a row in the database.
type Relay struct {
	Name    string // empty for the relay that publishes the topics of no other relay
	Topics  []string
	Lanes   int // the number of lanes that running processes own
	Present bool
}

// AllRelays returns up to limit relays that own lanes or topics, by name.
func AllRelays(ctx context.Context, tx pgx.Tx, limit int) ([]Relay, error) {
	rows, _ := tx.Query(ctx, `SELECT name, coalesce(t.topics[:20], '{}'), (SELECT count(DISTINCT r.lane) FROM `+present+` AND r.relay = name)::int4
		FROM (SELECT relay AS name FROM idem.relays UNION SELECT relay FROM idem.relay_topics) AS n LEFT JOIN idem.relay_topics t ON t.relay = name
		ORDER BY name LIMIT $1`, int64(limit)) // CollectRows returns the error
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Relay, err error) {
		err = row.Scan(&r.Name, &r.Topics, &r.Lanes)
		r.Present = r.Lanes > 0
		return r, err
	})
}

// HeldKey is a topic and key whose messages are held because the first of them failed.
type HeldKey struct {
	Topic, Key, Class string // Class is the error class of the failed message
	Messages          int64
	Attempts          int
	Since             time.Time
	NextAt            *time.Time

	Now time.Time // the clock of the database
}

// HeldKeys returns up to limit held keys, the key with the oldest message first. It scans the
// oldest Reach messages that are held.
func HeldKeys(ctx context.Context, tx pgx.Tx, limit int) ([]HeldKey, error) {
	rows, _ := tx.Query(ctx, `SELECT aggregatetype, aggregateid, coalesce(max(class), ''), count(*), coalesce(max(attempts), 0), min(created_at), min(next_at), clock_timestamp()
		FROM (SELECT aggregatetype, aggregateid, class, attempts, created_at, next_at FROM idem.outbox WHERE held = true ORDER BY seq LIMIT $1) AS m
		GROUP BY aggregatetype, aggregateid ORDER BY min(created_at), aggregatetype, aggregateid LIMIT $2`, int64(Reach), int64(limit)) // CollectRows returns the error
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h HeldKey, err error) {
		err = row.Scan(&h.Topic, &h.Key, &h.Class, &h.Messages, &h.Attempts, &h.Since, &h.NextAt, &h.Now)
		return h, err
	})
}
