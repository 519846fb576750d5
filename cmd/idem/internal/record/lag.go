package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Reach is how many messages, or operations, one look goes through at most.
const Reach = 10_000

// Topic is how far the outbox is behind with the messages of a topic.
type Topic struct {
	Name          string
	Waiting, Held int64
	Oldest        time.Duration // for how long the oldest of them could have been published
}

// Topics returns the topics of the messages that could be published, the one with the oldest in front, and whether there are more messages
// than were looked at: of those that wait and of those that are held the oldest Reach.
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

// Relay is a relay on record.
type Relay struct {
	Name    string // empty: the one that has what is of no other
	Topics  []string
	Lanes   int // that a process has which is there
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

// HeldKey is a topic and key whose messages wait for one that could not be published.
type HeldKey struct {
	Topic, Key, Class string // the class of the error of the first
	Messages          int64
	Attempts          int
	Since             time.Time
	NextAt            *time.Time

	Now time.Time // by the clock of the database
}

// HeldKeys returns those with the oldest messages in front, among the oldest Reach messages that are held.
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
