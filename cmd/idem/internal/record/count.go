package record

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Counts is the result of CountAll.
type Counts struct {
	States []StateCount `json:"states"`
	Sealed []SealCount  `json:"sealed"` // by key id
}

// SealCount is the number of responses that are sealed with a key.
type SealCount struct {
	Key     string `json:"key"` // key id; empty counts the responses that are not sealed
	Records int64  `json:"records"`
}

// StateCount is the number of records in a state.
type StateCount struct {
	State         string `json:"state"`
	Live          int64  `json:"live"`
	Expired       int64  `json:"expired"`
	ResponseBytes int64  `json:"response_bytes"` // the stored size of all bodies
}

// CountAll counts all records in one statement that reads the whole table. A row of the result has
// the sums of a state or of a key id.
func CountAll(ctx context.Context, tx pgx.Tx) (*Counts, error) {
	rows, _ := tx.Query(ctx, `
		SELECT grouping(state) = 0, (CASE WHEN grouping(state) = 0 THEN state ELSE coalesce(sealed_by, '') END) COLLATE "C",
			count(*) FILTER (WHERE expires_at > now()), count(*) FILTER (WHERE expires_at <= now()),
			coalesce(sum(pg_column_size(body)), 0)::int8, count(*) FILTER (WHERE state IN ('completed', 'failed'))
		FROM idem.records GROUP BY GROUPING SETS ((state), (coalesce(sealed_by, ''))) ORDER BY 2`) // ForEachRow returns the error
	counts := &Counts{States: []StateCount{}, Sealed: []SealCount{}}
	var isState bool
	var state StateCount
	var sealed SealCount
	_, err := pgx.ForEachRow(rows, []any{&isState, &state.State, &state.Live, &state.Expired, &state.ResponseBytes, &sealed.Records}, func() error {
		if sealed.Key = state.State; isState {
			counts.States = append(counts.States, state)
		} else if sealed.Records > 0 {
			counts.Sealed = append(counts.Sealed, sealed)
		}
		return nil
	})
	return counts, err
}

// Inserted returns how many records were inserted since the statistics of the server were reset.
// The server also counts rows whose transaction was rolled back. For a partitioned table the sum
// includes all partitions.
func Inserted(ctx context.Context, tx pgx.Tx) (n int64, err error) {
	err = tx.QueryRow(ctx, `SELECT coalesce(sum(pg_stat_get_tuples_inserted(t.oid)), 0)::int8 FROM (
		SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'idem' AND c.relname = 'records' AND c.relkind = 'r'
		UNION SELECT p.relid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_partition_tree(c.oid) p
		WHERE n.nspname = 'idem' AND c.relname = 'records' AND c.relkind = 'p' AND p.isleaf) AS t`).Scan(&n)
	return n, err
}
