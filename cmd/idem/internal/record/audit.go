package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
)

// Act is an entry of the audit table: an action of a person.
type Act struct {
	At           time.Time
	Act, Outcome string

	Role, Person, Reason string

	OperationID, Step string
	Scope, Key        string // the key is abridged
	Letter            db.LetterName

	Now time.Time // by the clock of the database
}

// ActFilter selects audit entries. Zero fields select all entries.
type ActFilter struct {
	Since, Older time.Duration // at most Since ago, and more than Older ago
	Act, Person  string
	OperationID  string
	MessageID    string
	Limit        int
}

// Acts returns audit entries, the latest first. This is the order of the primary key.
func Acts(ctx context.Context, tx pgx.Tx, f ActFilter) ([]Act, error) {
	rows, err := tx.Query(ctx, `SELECT at, act, outcome, role, person, reason, coalesce(operation_id::text, ''), step, scope, key, side, consumer, source, message_id, clock_timestamp()
		FROM idem.audit
		WHERE ($1 = 0 OR at >= (SELECT clock_timestamp() - make_interval(secs => $1))) AND ($2 = 0 OR at < (SELECT clock_timestamp() - make_interval(secs => $2)))
		AND ($3 = '' OR act = $3) AND ($4 = '' OR person = $4 OR role = $4) AND ($5 = '' OR operation_id = nullif($5, '')::uuid) AND ($6 = '' OR message_id = $6)
		ORDER BY at DESC, id DESC LIMIT $7`,
		f.Since.Seconds(), f.Older.Seconds(), f.Act, f.Person, f.OperationID, f.MessageID, f.Limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (a Act, err error) {
		err = row.Scan(&a.At, &a.Act, &a.Outcome, &a.Role, &a.Person, &a.Reason, &a.OperationID, &a.Step, &a.Scope, &a.Key,
			&a.Letter.Side, &a.Letter.Consumer, &a.Letter.Source, &a.Letter.ID, &a.Now)
		return a, err
	})
}
