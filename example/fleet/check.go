package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// DifferenceError says that the copy of a table differs from the original. Nothing was moved.
type DifferenceError struct{ Table string }

func (e *DifferenceError) Error() string { return "fleet: the copy of " + e.Table + " differs" }

// digest returns an SQL expression: the count and a hash of rows, independent of their order.
// Columns with a replaced value are left out.
func digest(p *part) string {
	columns := slices.DeleteFunc(slices.Clone(p.columns), func(c string) bool { return p.values[c] != "" })
	return "concat(count(*), ' ', sum(hashtextextended(ROW(t." + strings.Join(columns, ", t.") + ")::text, 0)))"
}

// compare compares the digests of the lasting rows of a part in both clusters. If they differ,
// compare deletes the copies of rows that the old home has deleted meanwhile, and compares again.
// It returns a DifferenceError if they still differ.
func compare(ctx context.Context, from, to pgx.Tx, p *part, moment time.Time) error {
	query := "SELECT " + digest(p) + p.from(strings.ReplaceAll(p.lasting, now, literal(moment.UTC().Format(time.RFC3339Nano))+"::timestamptz"))
	for forgotten := false; ; forgotten = true {
		var want, got string
		counted := make(chan error, 1)
		go func() { counted <- from.QueryRow(ctx, query).Scan(&want) }()
		err := errors.Join(to.QueryRow(ctx, query).Scan(&got), <-counted)
		switch {
		case err != nil:
			return fmt.Errorf("fleet: compare %s: %w", p.name, err)
		case got == want:
			return nil
		case forgotten:
			return &DifferenceError{p.name}
		}
		if err := forget(ctx, from, to, p); err != nil {
			return err
		}
	}
}

// forget deletes the copies of rows that no longer exist in the old home.
func forget(ctx context.Context, from, to pgx.Tx, p *part) error {
	keys := strings.Join(p.keys, ", ")
	if err := stream(ctx, from, to, p.query(p.keys, ""), "SELECT "+keys+" FROM "+p.name); err != nil {
		return fmt.Errorf("fleet: compare %s: %w", p.name, err)
	}
	same := make([]string, len(p.keys))
	for i, k := range p.keys {
		same[i] = "a." + k + " = t." + k
	}
	_, err := to.Exec(ctx, "DELETE FROM "+p.name+" t WHERE "+p.rows+" AND NOT EXISTS (SELECT FROM pg_temp.arriving a WHERE "+strings.Join(same, " AND ")+")")
	return err
}
