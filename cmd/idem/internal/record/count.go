package record

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Inserted returns the number of records that were inserted since the server's statistics were last
// reset. Inserts of transactions that were rolled back count too.
func Inserted(ctx context.Context, tx pgx.Tx) (n int64, err error) {
	err = tx.QueryRow(ctx, `SELECT coalesce(sum(pg_stat_get_tuples_inserted(t.oid)), 0)::int8 FROM (
		SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'idem' AND c.relname = 'records' AND c.relkind = 'r'
		UNION SELECT p.relid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_partition_tree(c.oid) p
		WHERE n.nspname = 'idem' AND c.relname = 'records' AND c.relkind = 'p' AND p.isleaf) AS t`).Scan(&n)
	return n, err
}

// Counts is the result of a count over the whole table.
type Counts struct {
	States []StateCount `json:"states"`
	Sealed []SealCount  `json:"sealed"` // by ID of the seal key
}

// SealCount is the number of responses that one key has sealed.
type SealCount struct {
	Key     string `json:"key"` // empty for plain responses
	Records int64  `json:"records"`
}

// StateCount is the number of records in a state.
type StateCount struct {
	State         string `json:"state"`
	Live          int64  `json:"live"`
	Expired       int64  `json:"expired"`
	ResponseBytes int64  `json:"response_bytes"` // stored size of the bodies
}

// CountAll scans the whole table once.
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

// add adds a row to the count of its state. Rows arrive ordered by state.
func (c *Counts) add(row StateCount) {
	if last := len(c.States) - 1; last >= 0 && c.States[last].State == row.State {
		c.States[last].Live += row.Live
		c.States[last].Expired += row.Expired
		c.States[last].ResponseBytes += row.ResponseBytes
		return
	}
	c.States = append(c.States, row)
}
