package record

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Inserted returns how many records were inserted since the statistics of the server began, those of transactions that were rolled back included.
func Inserted(ctx context.Context, tx pgx.Tx) (n int64, err error) {
	err = tx.QueryRow(ctx, `SELECT coalesce(sum(pg_stat_get_tuples_inserted(t.oid)), 0)::int8 FROM (
		SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'idem' AND c.relname = 'records' AND c.relkind = 'r'
		UNION SELECT p.relid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_partition_tree(c.oid) p
		WHERE n.nspname = 'idem' AND c.relname = 'records' AND c.relkind = 'p' AND p.isleaf) AS t`).Scan(&n)
	return n, err
}

// Counts are what a walk through the whole table has counted.
type Counts struct {
	States []StateCount `json:"states"`
	Sealed []SealCount  `json:"sealed"` // by the id of the key
}

// SealCount is how many responses are sealed with a key, or plain.
type SealCount struct {
	Key     string `json:"key"` // empty: plain
	Records int64  `json:"records"`
}

// StateCount is how many records there are in a state.
type StateCount struct {
	State         string `json:"state"`
	Live          int64  `json:"live"`
	Expired       int64  `json:"expired"`
	ResponseBytes int64  `json:"response_bytes"` // of the bodies, as they are stored
}

// CountAll reads the whole table, once.
func CountAll(ctx context.Context, tx pgx.Tx) (*Counts, error) {
	rows, err := tx.Query(ctx, `
		SELECT state, coalesce(sealed_by, ''), count(*) FILTER (WHERE expires_at > now()), count(*) FILTER (WHERE expires_at <= now()),
			coalesce(sum(pg_column_size(body)), 0)::int8
		FROM idem.records GROUP BY 1, 2 ORDER BY 1, 2`)
	if err != nil {
		return nil, err
	}
	counts := &Counts{States: []StateCount{}, Sealed: []SealCount{}}
	sealed := map[string]int64{}
	var row StateCount
	var key string
	_, err = pgx.ForEachRow(rows, []any{&row.State, &key, &row.Live, &row.Expired, &row.ResponseBytes}, func() error {
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

func (c *Counts) add(row StateCount) {
	if last := len(c.States) - 1; last >= 0 && c.States[last].State == row.State {
		c.States[last].Live += row.Live
		c.States[last].Expired += row.Expired
		c.States[last].ResponseBytes += row.ResponseBytes
		return
	}
	c.States = append(c.States, row)
}
