package record

import (
	"context"
	"maps"
	"slices"

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

// CountAll counts all records in one statement that reads the whole table.
func CountAll(ctx context.Context, tx pgx.Tx) (*Counts, error) {
	rows, _ := tx.Query(ctx, `
		SELECT state, coalesce(sealed_by, ''), count(*) FILTER (WHERE expires_at > now()), count(*) FILTER (WHERE expires_at <= now()),
			coalesce(sum(pg_column_size(body)), 0)::int8
		FROM idem.records GROUP BY 1, 2 ORDER BY 1, 2`) // ForEachRow returns the error
	counts := &Counts{States: []StateCount{}, Sealed: []SealCount{}}
	sealed := map[string]int64{}
	var row StateCount
	var key string
	_, err := pgx.ForEachRow(rows, []any{&row.State, &key, &row.Live, &row.Expired, &row.ResponseBytes}, func() error {
		counts.add(row)
		if row.State != Processing && row.State != Running {
			sealed[key] += row.Live + row.Expired
		}
		return nil
	})
	for _, key := range slices.Sorted(maps.Keys(sealed)) {
		counts.Sealed = append(counts.Sealed, SealCount{key, sealed[key]})
	}
	return counts, err
}

// add merges row into the last state. The query groups by state and key id, and this sum drops the
// key id again. It relies on the order of the rows: equal states follow each other.
func (c *Counts) add(row StateCount) {
	if last := len(c.States) - 1; last >= 0 && c.States[last].State == row.State {
		c.States[last].Live += row.Live
		c.States[last].Expired += row.Expired
		c.States[last].ResponseBytes += row.ResponseBytes
		return
	}
	c.States = append(c.States, row)
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
