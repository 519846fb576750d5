package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/audit"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
)

// DeadLetter is a dead letter. Payload and Headers are set only if the caller asked to reveal them.
// The fields are in the order of the columns that DeadLetters reads.
type DeadLetter struct {
	db.LetterName
	Key          string     `json:"key"`
	Type         string     `json:"type"`
	Class        string     `json:"class"`
	Reason       string     `json:"reason,omitempty"`
	Attempts     int        `json:"attempts"`
	AddedAt      time.Time  `json:"added_at"`
	DiedAt       time.Time  `json:"died_at"`
	RedriveAt    *time.Time `json:"redrive_at"` // time from which it may be retried; nil if it was not redriven
	SealedBy     string     `json:"sealed_by,omitempty"`
	HeaderBytes  int64      `json:"header_bytes"`
	PayloadBytes int64      `json:"payload_bytes"`

	Payload []byte `json:"-"` // nil unless revealed
	Headers string `json:"-"`

	Now time.Time `json:"-"` // the clock of the database
}

// DeadLetterFilter selects dead letters. An empty field selects all.
type DeadLetterFilter struct {
	Only   db.LetterName
	Class  string
	Older  time.Duration
	After  db.LetterName // only dead letters after this one in the order of DeadLetters
	Limit  int
	Reveal bool
}

// DeadLetters returns dead letters in the order of side, consumer, source and id. This is the order
// of the primary key, so After is a position in the index. The other conditions are checked row by
// row.
func DeadLetters(ctx context.Context, tx pgx.Tx, f DeadLetterFilter) ([]DeadLetter, error) {
	rows, _ := tx.Query(ctx, `SELECT side, consumer, source, id, key, type, class, reason, attempts, created_at, died_at, redrive_at, coalesce(sealed_by, ''),
		coalesce(length(headers::text), 0)::int8, coalesce(length(payload), 0)::int8,
		CASE WHEN $1 THEN payload END, CASE WHEN $1 THEN coalesce(headers::text, '') ELSE '' END, clock_timestamp()
		FROM idem.dead_letters
		WHERE ($2 = '' OR side = $2) AND ($3 = '' OR consumer = $3) AND ($4 = '' OR source = $4) AND ($5 = '' OR id = $5) AND ($6 = '' OR class = $6)
		AND ($7 = 0 OR died_at < clock_timestamp() - make_interval(secs => $7)) AND (side, consumer, source, id) > ($8, $9, $10, $11)
		ORDER BY side, consumer, source, id LIMIT $12`,
		f.Reveal, f.Only.Side, f.Only.Consumer, f.Only.Source, f.Only.ID, f.Class, f.Older.Seconds(),
		f.After.Side, f.After.Consumer, f.After.Source, f.After.ID, f.Limit) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[DeadLetter])
}

// DropDeadLetter deletes a dead letter, and writes a row to idem.audit in the same transaction. It
// returns false if the dead letter is gone, or was dead-lettered again since l was read: then the
// person has not seen the latest error, and has to decide again.
//
// A redriven message of an inbox is failing until it is handled. DropDeadLetter sets it to dead, as
// inbox.Drop does, so that a redelivery does not process it.
func DropDeadLetter(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, l *DeadLetter) (dropped bool, err error) {
	err = Change(ctx, pool, timeout, func(tx pgx.Tx) error {
		if l.Side == deadletter.Inbox {
			if _, err := tx.Exec(ctx, `UPDATE idem.inbox m
				SET state = 'dead', since = clock_timestamp(), begun = NULL, hindered = NULL, retry_at = NULL, key = NULL
				FROM idem.dead_letters l
				WHERE m.consumer = $1 AND m.source = $2 AND m.id = $3 AND m.state = 'failing'
				AND l.side = 'inbox' AND l.consumer = m.consumer AND l.source = m.source AND l.id = m.id AND l.redrive_at IS NOT NULL AND l.died_at = $4`,
				l.Consumer, l.Source, l.ID, l.DiedAt); err != nil {
				return err
			}
		}
		tag, err := tx.Exec(ctx, "DELETE FROM idem.dead_letters WHERE side = $1 AND consumer = $2 AND source = $3 AND id = $4 AND died_at = $5",
			l.Side, l.Consumer, l.Source, l.ID, l.DiedAt)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		dropped = true
		note := audit.Note(ctx, db.Drop, "deleted")
		note.Letter = l.LetterName
		return note.In(ctx, tx)
	})
	return dropped, err
}

// Open decrypts payload and headers. It does nothing if they are not sealed.
func (l *DeadLetter) Open(sealer db.Sealer) (err error) {
	if l.SealedBy == "" {
		return nil
	}
	contents, err := db.Contents{Payload: l.Payload, Headers: l.Headers, SealedBy: l.SealedBy}.Open(sealer, l.LetterName)
	if err == nil {
		l.Payload, l.Headers = contents.Payload, contents.Headers
	}
	return err
}
