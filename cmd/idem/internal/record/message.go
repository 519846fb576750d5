package record

import (
	"context"
	"strings"
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
// the index, and merges the two. A query for both at once would have to sort the whole outbox.
func Messages(ctx context.Context, tx pgx.Tx, f MessageFilter) ([]Message, error) {
	const side = `(SELECT * FROM idem.outbox WHERE held = %HELD AND seq > $1 AND ($2 = '' OR aggregatetype = $2)
		AND ($3 = 0 OR created_at < clock_timestamp() - make_interval(secs => $3)) AND $4 <> '%OTHER' ORDER BY seq LIMIT $5)`
	rows, _ := tx.Query(ctx, `SELECT seq, id::text, aggregatetype, aggregateid, type, created_at,
			CASE WHEN held THEN 'held' ELSE 'waiting' END, attempts, next_at, coalesce(class, ''), clock_timestamp()
		FROM (`+replaced(side, "%HELD", "false", "%OTHER", "held")+" UNION ALL "+replaced(side, "%HELD", "true", "%OTHER", "waiting")+`) AS m
		ORDER BY seq LIMIT $5`, f.After, f.Topic, f.Older.Seconds(), f.State, f.Limit) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Message])
}

// DelayedMessages returns messages that are not due yet, in the order in which they become due. It
// ignores f.After.
func DelayedMessages(ctx context.Context, tx pgx.Tx, f MessageFilter) ([]Message, error) {
	rows, _ := tx.Query(ctx, `SELECT seq, id::text, aggregatetype, aggregateid, type, created_at,
			'delayed', NULL::integer, not_before, '', clock_timestamp()
		FROM idem.delayed
		WHERE ($1 = '' OR aggregatetype = $1) AND ($2 = 0 OR created_at < clock_timestamp() - make_interval(secs => $2))
		ORDER BY not_before, seq LIMIT $3`, f.Topic, f.Older.Seconds(), f.Limit) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Message])
}

// Lanes is the number of lanes of the outbox, which are groups of keys. One relay at a time owns a
// lane.
const Lanes = 16

// runningInstances is a query for the numbers of the running processes. A process with a session of
// its own holds the advisory lock (1768187247, its number), which ends with the session. A process
// behind a pooler has no session of its own and renews a lease instead. pg_locks shows the two
// halves of such a lock as classid and objid, and objsubid is 2.
const runningInstances = `SELECT l.objid::int8::int4 FROM pg_locks l
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = 1768187247::oid
		  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		UNION ALL
		SELECT instance FROM idem.leases WHERE expires_at > clock_timestamp()`

// ownedLanes is the FROM clause for the lanes that running processes own.
const ownedLanes = `idem.relays r WHERE r.instance IN (` + runningInstances + `)`

// Relays returns how many lanes running processes own.
func Relays(ctx context.Context, tx pgx.Tx) (lanes int, err error) {
	err = tx.QueryRow(ctx, "SELECT count(DISTINCT lane) FROM "+ownedLanes).Scan(&lanes)
	return lanes, err
}

// Orphan is a topic with waiting messages that no running relay publishes.
type Orphan struct {
	Topic string
	// Relay is the name of the relay that owns the topic. It is empty if no relay owns the topic.
	// Then the relay without a name would publish the topic, but it does not run.
	Relay string
}

// Orphans returns up to 10 topics with waiting messages that no running relay publishes. It scans
// the oldest messages only. If no relay has topics of its own, it returns nothing. A topic pattern
// that ends in "*" matches a prefix.
func Orphans(ctx context.Context, tx pgx.Tx) ([]Orphan, error) {
	rows, _ := tx.Query(ctx, `WITH own AS (SELECT t.relay, unnest(t.topics) AS topic FROM idem.relay_topics t),
		waiting AS (SELECT DISTINCT m.aggregatetype AS topic FROM (
			(SELECT aggregatetype FROM idem.outbox WHERE held = false ORDER BY seq LIMIT 10000) UNION ALL
			(SELECT aggregatetype FROM idem.outbox WHERE held = true ORDER BY seq LIMIT 10000) UNION ALL
			(SELECT aggregatetype FROM idem.delayed WHERE not_before <= (SELECT clock_timestamp()) ORDER BY not_before LIMIT 10000)) m)
		SELECT w.topic, coalesce(o.relay, '') FROM waiting w
		LEFT JOIN own o ON CASE WHEN right(o.topic, 1) = '*' THEN starts_with(w.topic, left(o.topic, -1)) ELSE w.topic = o.topic END
		WHERE EXISTS (SELECT FROM own) AND NOT EXISTS (SELECT FROM `+ownedLanes+` AND r.relay = coalesce(o.relay, ''))
		ORDER BY 1 LIMIT 10`) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Orphan])
}

// Oldest returns the age of the oldest message that could have been published. The age of a delayed
// message counts from the time at which it became due. Oldest returns 0 if there is no such
// message.
func Oldest(ctx context.Context, tx pgx.Tx) (age time.Duration, err error) {
	var seconds float64
	err = tx.QueryRow(ctx, `SELECT coalesce(extract(epoch FROM clock_timestamp() - least(
		(SELECT not_before FROM idem.delayed ORDER BY not_before LIMIT 1),
		(SELECT created_at FROM idem.outbox WHERE held = false ORDER BY seq LIMIT 1),
		(SELECT min(created_at) FROM (SELECT created_at FROM idem.outbox WHERE held = true ORDER BY seq LIMIT 10000) AS held))), 0)::float8`).Scan(&seconds)
	return max(time.Duration(seconds*float64(time.Second)), 0), err
}

// MaxScanned is the maximum number of messages or operations that one query scans. A page or a
// check must stay cheap when the backlog is large, which is when a person looks at it.
const MaxScanned = 10_000

// Topic is the backlog of a topic in the outbox.
type Topic struct {
	Name          string
	Waiting, Held int64
	Oldest        time.Duration // the age of the oldest message that could have been published
}

// Topics returns up to limit topics that have messages to publish, the topic with the oldest
// message first. It scans up to MaxScanned messages of each kind: waiting, held, and delayed messages
// that are due. partly reports whether the outbox may have more messages than were scanned.
func Topics(ctx context.Context, tx pgx.Tx, limit int) (topics []Topic, partly bool, err error) {
	rows, _ := tx.Query(ctx, `SELECT topic, count(*) FILTER (WHERE NOT held), count(*) FILTER (WHERE held),
			greatest(extract(epoch FROM clock_timestamp() - min(since)), 0)::float8, sum(count(*)) OVER ()::int8
		FROM (
			(SELECT aggregatetype AS topic, false AS held, created_at AS since FROM idem.outbox WHERE held = false ORDER BY seq LIMIT $1) UNION ALL
			(SELECT aggregatetype, true, created_at FROM idem.outbox WHERE held = true ORDER BY seq LIMIT $1) UNION ALL
			(SELECT aggregatetype, false, not_before FROM idem.delayed WHERE not_before <= (SELECT clock_timestamp()) ORDER BY not_before LIMIT $1)) AS m
		GROUP BY topic ORDER BY min(since), topic LIMIT $2`, int64(MaxScanned), int64(limit)) // CollectRows returns the error
	var scanned int64
	topics, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Topic, err error) {
		var seconds float64
		err = row.Scan(&t.Name, &t.Waiting, &t.Held, &seconds, &scanned)
		t.Oldest = time.Duration(seconds * float64(time.Second))
		return t, err
	})
	return topics, scanned >= MaxScanned, err
}

// Relay is a relay that has a row in the database.
type Relay struct {
	Name   string // empty for the relay that publishes the topics of no other relay
	Topics []string
	Lanes  int // the number of lanes that running processes own
}

// AllRelays returns up to limit relays that own lanes or topics, by name.
func AllRelays(ctx context.Context, tx pgx.Tx, limit int) ([]Relay, error) {
	rows, _ := tx.Query(ctx, `SELECT name, coalesce(t.topics[:20], '{}'), (SELECT count(DISTINCT r.lane) FROM `+ownedLanes+` AND r.relay = name)::int4
		FROM (SELECT relay AS name FROM idem.relays UNION SELECT relay FROM idem.relay_topics) AS n LEFT JOIN idem.relay_topics t ON t.relay = name
		ORDER BY name LIMIT $1`, int64(limit)) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Relay])
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
// oldest MaxScanned messages that are held.
func HeldKeys(ctx context.Context, tx pgx.Tx, limit int) ([]HeldKey, error) {
	// CollectRows returns the error of Query.
	rows, _ := tx.Query(ctx, `SELECT aggregatetype, aggregateid, coalesce(max(class), ''), count(*), coalesce(max(attempts), 0),
			min(created_at), min(next_at), clock_timestamp()
		FROM (SELECT aggregatetype, aggregateid, class, attempts, created_at, next_at FROM idem.outbox WHERE held = true ORDER BY seq LIMIT $1) AS m
		GROUP BY aggregatetype, aggregateid ORDER BY min(created_at), aggregatetype, aggregateid LIMIT $2`, int64(MaxScanned), int64(limit))
	return pgx.CollectRows(rows, pgx.RowToStructByPos[HeldKey])
}

// Consumer is the backlog of a consumer: its failing messages and its dead letters.
type Consumer struct {
	Name         string     `json:"consumer"`
	Failing      int64      `json:"failing"`
	FailingSince *time.Time `json:"failing_since"` // the first failure of the oldest failing message
	NextAt       *time.Time `json:"next_at"`       // the earliest next attempt
	Attempts     int        `json:"most_attempts"` // the maximum over the failing messages
	Dead         int64      `json:"dead_letters"`
	Redrives     int64      `json:"redrives"` // dead letters that are to be retried
	DeadSince    *time.Time `json:"dead_since"`

	Now time.Time `json:"-"` // the clock of the database
}

// Consumers returns each consumer that has failing messages or dead letters, by name. It does not
// read handled messages.
func Consumers(ctx context.Context, tx pgx.Tx) ([]Consumer, error) {
	rows, _ := tx.Query(ctx, `SELECT consumer, coalesce(failing, 0), failing_since, next_at, coalesce(attempts, 0), coalesce(dead, 0), coalesce(redrives, 0),
			dead_since, clock_timestamp()
		FROM (SELECT consumer, count(*) AS failing, min(since) AS failing_since, min(retry_at) AS next_at, max(coalesce(attempts, 0)) AS attempts
			FROM idem.inbox WHERE state = 'failing' GROUP BY consumer) AS m
		FULL JOIN (SELECT consumer, count(*) AS dead, count(redrive_at) AS redrives, min(died_at) AS dead_since
			FROM idem.dead_letters WHERE side = 'inbox' GROUP BY consumer) AS l USING (consumer)
		ORDER BY consumer`) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Consumer])
}

// Failing is a message that a consumer has failed to handle and will retry.
type Failing struct {
	Consumer string     `json:"consumer"`
	Source   string     `json:"source"`
	ID       string     `json:"id"`
	Key      string     `json:"key"`
	Since    time.Time  `json:"since"`
	Attempts int        `json:"attempts"`
	Hindered int        `json:"hindered,omitempty"` // attempts that failed by no fault of the message, such as a lock timeout
	NextAt   *time.Time `json:"next_at"`            // nil if the last attempt has no recorded end

	Now time.Time `json:"-"` // the clock of the database
}

// FailingMessages returns up to limit failing messages, the earliest failure first. An empty
// consumer or source selects all. The partial index on failing messages keeps the query cheap,
// however many messages were handled.
func FailingMessages(ctx context.Context, tx pgx.Tx, consumer, source string, limit int) ([]Failing, error) {
	rows, _ := tx.Query(ctx, `SELECT consumer, source, id, coalesce(key, ''), since, coalesce(attempts, 0),
		coalesce(hindered, 0), CASE WHEN begun THEN NULL ELSE retry_at END, clock_timestamp()
		FROM idem.inbox WHERE state = 'failing' AND ($1 = '' OR consumer = $1) AND ($2 = '' OR source = $2)
		ORDER BY since, consumer, source, id LIMIT $3`, consumer, source, limit) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Failing])
}

// replaced replaces placeholders in the text of a query. pairs has each placeholder followed by its
// value, which may be a part of another query.
func replaced(text string, pairs ...string) string {
	return strings.NewReplacer(pairs...).Replace(text)
}
