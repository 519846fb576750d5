package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

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
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Consumer, err error) {
		err = row.Scan(&c.Name, &c.Failing, &c.FailingSince, &c.NextAt, &c.Attempts, &c.Dead, &c.Redrives, &c.DeadSince, &c.Now)
		return c, err
	})
}

// Failing is a message that a consumer has failed to handle and will retry.
type Failing struct {
	Consumer string     `json:"consumer"`
	Source   string     `json:"source"`
	ID       string     `json:"id"`
	Key      string     `json:"key"`
	Since    time.Time  `json:"since"`
	Attempts int        `json:"attempts"`
	Hindered int        `json:"hindered,omitempty"` // failures that do not count, such as a lock timeout
	NextAt   *time.Time `json:"next_at"`            // nil while an attempt has begun and has no recorded end

	Now time.Time `json:"-"` // the clock of the database
}

// FailingMessages returns up to limit failing messages, the earliest failure first. An empty
// consumer or source selects all.
func FailingMessages(ctx context.Context, tx pgx.Tx, consumer, source string, limit int) ([]Failing, error) {
	rows, _ := tx.Query(ctx, `SELECT consumer, source, id, coalesce(key, ''), since, coalesce(attempts, 0),
		coalesce(hindered, 0), CASE WHEN begun THEN NULL ELSE retry_at END, clock_timestamp()
		FROM idem.inbox WHERE state = 'failing' AND ($1 = '' OR consumer = $1) AND ($2 = '' OR source = $2)
		ORDER BY since, consumer, source, id LIMIT $3`, consumer, source, limit) // CollectRows returns the error
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f Failing, err error) {
		err = row.Scan(&f.Consumer, &f.Source, &f.ID, &f.Key, &f.Since, &f.Attempts, &f.Hindered, &f.NextAt, &f.Now)
		return f, err
	})
}
