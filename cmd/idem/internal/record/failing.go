package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Consumer is the backlog of a consumer of messages.
type Consumer struct {
	Name         string
	Failing      int64
	FailingSince *time.Time // first failure of the message that has been failing longest
	NextAt       *time.Time // earliest next attempt
	Attempts     int        // highest number of attempts of a message
	Dead         int64
	Redrives     int64 // dead letters with a requested redrive
	DeadSince    *time.Time

	Now time.Time // by the clock of the database
}

// Consumers returns the consumers with failing messages or dead letters, by name. The query does
// not read rows of handled messages.
func Consumers(ctx context.Context, tx pgx.Tx) ([]Consumer, error) {
	rows, err := tx.Query(ctx, `SELECT consumer, coalesce(failing, 0), failing_since, next_at, coalesce(attempts, 0), coalesce(dead, 0), coalesce(redrives, 0),
			dead_since, clock_timestamp()
		FROM (SELECT consumer, count(*) AS failing, min(since) AS failing_since, min(retry_at) AS next_at, max(coalesce(attempts, 0)) AS attempts
			FROM idem.inbox WHERE state = 'failing' GROUP BY consumer) AS m
		FULL JOIN (SELECT consumer, count(*) AS dead, count(redrive_at) AS redrives, min(died_at) AS dead_since
			FROM idem.dead_letters WHERE side = 'inbox' GROUP BY consumer) AS l USING (consumer)
		ORDER BY consumer`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Consumer, err error) {
		err = row.Scan(&c.Name, &c.Failing, &c.FailingSince, &c.NextAt, &c.Attempts, &c.Dead, &c.Redrives, &c.DeadSince, &c.Now)
		return c, err
	})
}

// Failing is a message that its consumer failed to handle and will try again.
type Failing struct {
	Consumer, Source, ID string
	Key                  string
	Since                time.Time
	Attempts             int
	Hindered             int        // attempts that failed for a reason outside of the message, and do not count
	NextAt               *time.Time // nil if the last attempt has begun and has no recorded end

	Now time.Time // by the clock of the database
}

// FailingMessages returns failing messages, the longest failing first. An empty consumer or source
// selects all.
func FailingMessages(ctx context.Context, tx pgx.Tx, consumer, source string, limit int) ([]Failing, error) {
	rows, err := tx.Query(ctx, `SELECT consumer, source, id, coalesce(key, ''), since, coalesce(attempts, 0),
		coalesce(hindered, 0), CASE WHEN begun THEN NULL ELSE retry_at END, clock_timestamp()
		FROM idem.inbox WHERE state = 'failing' AND ($1 = '' OR consumer = $1) AND ($2 = '' OR source = $2)
		ORDER BY since, consumer, source, id LIMIT $3`, consumer, source, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f Failing, err error) {
		err = row.Scan(&f.Consumer, &f.Source, &f.ID, &f.Key, &f.Since, &f.Attempts, &f.Hindered, &f.NextAt, &f.Now)
		return f, err
	})
}
