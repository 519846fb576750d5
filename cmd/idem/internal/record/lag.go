package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Reach is the maximum number of messages or operations that one query examines.
const Reach = 10_000

// Topic is the backlog of the outbox for one topic.
type Topic struct {
	Name          string
	Waiting, Held int64
	Oldest        time.Duration // time since the oldest message became due
}

// Topics returns the topics of messages that are due, the topic with the oldest message first. It
// examines the oldest Reach messages each of those that wait, that are held and that were delayed.
// If there may be more, it reports partly.
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

// Relay is a relay with lanes or topics in the database.
type Relay struct {
	Name    string // empty for the relay of all topics that no other relay has
	Topics  []string
	Lanes   int // lanes that a running process owns
	Present bool
}

// AllRelays returns the relays that have lanes or topics of their own, by name.
func AllRelays(ctx context.Context, tx pgx.Tx, limit int) ([]Relay, error) {
	rows, err := tx.Query(ctx, `SELECT name, coalesce(t.topics[:20], '{}'), (SELECT count(DISTINCT r.lane) FROM `+present+` AND r.relay = name)::int4
		FROM (SELECT relay AS name FROM idem.relays UNION SELECT relay FROM idem.relay_topics) AS n LEFT JOIN idem.relay_topics t ON t.relay = name
		ORDER BY name LIMIT $1`, int64(limit))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Relay, err error) {
		err = row.Scan(&r.Name, &r.Topics, &r.Lanes)
		r.Present = r.Lanes > 0
		return r, err
	})
}

// HeldKey is a topic and key whose messages wait behind a message that could not be published.
type HeldKey struct {
	Topic, Key, Class string // Class is the error class of the first message
	Messages          int64
	Attempts          int
	Since             time.Time
	NextAt            *time.Time

	Now time.Time // by the clock of the database
}

// HeldKeys returns the held keys among the oldest Reach held messages, the key with the oldest
// message first.
func HeldKeys(ctx context.Context, tx pgx.Tx, limit int) ([]HeldKey, error) {
	rows, err := tx.Query(ctx, `SELECT aggregatetype, aggregateid, coalesce(max(class), ''), count(*), coalesce(max(attempts), 0), min(created_at), min(next_at), clock_timestamp()
		FROM (SELECT aggregatetype, aggregateid, class, attempts, created_at, next_at FROM idem.outbox WHERE held = true ORDER BY seq LIMIT $1) AS m
		GROUP BY aggregatetype, aggregateid ORDER BY min(created_at), aggregatetype, aggregateid LIMIT $2`, int64(Reach), int64(limit))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h HeldKey, err error) {
		err = row.Scan(&h.Topic, &h.Key, &h.Class, &h.Messages, &h.Attempts, &h.Since, &h.NextAt, &h.Now)
		return h, err
	})
}
