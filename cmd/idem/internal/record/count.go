package record

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Counts are what a walk through the whole table has counted.
type Counts struct {
	States []StateCount `json:"states"`
}

// StateCount is how many records there are in a state.
type StateCount struct {
	State         string `json:"state"`
	Live          int64  `json:"live"`
	Expired       int64  `json:"expired"`
	ResponseBytes int64  `json:"response_bytes"` // of the bodies, as they are stored
}

// CountAll reads the whole table.
func CountAll(ctx context.Context, tx pgx.Tx) (*Counts, error) {
	rows, err := tx.Query(ctx, `
		SELECT state, count(*) FILTER (WHERE expires_at > now()), count(*) FILTER (WHERE expires_at <= now()),
			coalesce(sum(pg_column_size(body)), 0)::int8
		FROM idem.records GROUP BY state ORDER BY state`)
	if err != nil {
		return nil, err
	}
	states, err := pgx.CollectRows(rows, pgx.RowToStructByPos[StateCount])
	if states == nil {
		states = []StateCount{}
	}
	return &Counts{states}, err
}
