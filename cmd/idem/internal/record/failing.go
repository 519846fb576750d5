package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Consumer tells what a consumer of messages has yet to handle.
type Consumer struct {
	Name         string
	Failing      int64
	FailingSince *time.Time // when the first of them failed first
	NextAt       *time.Time // when the first of them is tried again
	Attempts     int        // the most that one of them has had
	Dead         int64
	Redrives     int64 // those of them that are to be tried again
	DeadSince    *time.Time

	Now time.Time // by the clock of the database
}

// Consumers returns each consumer that has failing messages or dead letters, by name. What is handled is not read.
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

// Failing is a message that a consumer is to try again.
type Failing struct {
	Consumer, Source, ID string
	Key                  string
	Since                time.Time
	Attempts             int
	Hindered             int        // attempts that something else has hindered, and that do not count
	NextAt               *time.Time // nil if the last attempt was announced and has no recorded end

	Now time.Time // by the clock of the database
}

// FailingMessages returns what consumers are to try again, what failed first in front. What is empty does not matter.
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
