package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditEntry is a row of idem.audit: a change that a person made. The fields are in the order of the
// columns that AuditEntries reads.
type AuditEntry struct {
	At          time.Time `json:"at"`
	Act         string    `json:"act"`
	Outcome     string    `json:"outcome"`
	Role        string    `json:"role"`
	Person      string    `json:"person,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	OperationID string    `json:"operation_id,omitempty"`
	Step        string    `json:"step,omitempty"`
	Scope       string    `json:"scope,omitempty"`
	Key         string    `json:"key,omitempty"` // abridged
	Side        string    `json:"side,omitempty"`
	Consumer    string    `json:"consumer,omitempty"`
	Source      string    `json:"source,omitempty"`
	MessageID   string    `json:"message_id,omitempty"`

	Now time.Time `json:"-"` // the clock of the database when the row was read
}

// AuditFilter selects rows of idem.audit. An empty field selects all.
type AuditFilter struct {
	Since, Older time.Duration // changes made within the last Since, but not within the last Older
	Act, Person  string        // Person matches the person or the role
	OperationID  string
	MessageID    string
	Limit        int
}

// AuditEntries returns what people did, the latest first. This is the order of the primary key, so
// Limit ends the scan early. The times are in subqueries, so that the server computes them once and
// can use them as bounds of an index scan.
func AuditEntries(ctx context.Context, tx pgx.Tx, f AuditFilter) ([]AuditEntry, error) {
	rows, _ := tx.Query(ctx, `SELECT at, act, outcome, role, person, reason, coalesce(operation_id::text, ''), step, scope, key,
			side, consumer, source, message_id, clock_timestamp()
		FROM idem.audit
		WHERE ($1 = 0 OR at >= (SELECT clock_timestamp() - make_interval(secs => $1)))
		AND ($2 = 0 OR at < (SELECT clock_timestamp() - make_interval(secs => $2)))
		AND ($3 = '' OR act = $3) AND ($4 = '' OR person = $4 OR role = $4)
		AND ($5 = '' OR operation_id = nullif($5, '')::uuid) AND ($6 = '' OR message_id = $6)
		ORDER BY at DESC, id DESC LIMIT $7`,
		f.Since.Seconds(), f.Older.Seconds(), f.Act, f.Person, f.OperationID, f.MessageID, f.Limit) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[AuditEntry])
}
