package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// DifferenceError says that the copy of a table differs from the original. Nothing was moved.
type DifferenceError struct{ Table string }

func (e *DifferenceError) Error() string { return "fleet: the copy of " + e.Table + " differs" }

// digest returns an SQL expression for the count and a hash of the rows of p, independent of their
// order. It leaves out the columns that get another value in the copy.
func digest(p *part) string {
	columns := slices.DeleteFunc(slices.Clone(p.columns), func(c string) bool { return p.values[c] != "" })
	return "concat(count(*), ' ', sum(hashtextextended(ROW(t." + strings.Join(columns, ", t.") + ")::text, 0)))"
}

// compare compares the digests of a part in both clusters. It returns a DifferenceError if they
// differ, for example because a trigger of the new home has changed rows.
func compare(ctx context.Context, from, to pgx.Tx, p *part) error {
	query := "SELECT " + digest(p) + p.from("")
	var want, got string
	counted := make(chan error, 1)
	go func() { counted <- from.QueryRow(ctx, query).Scan(&want) }()
	if err := errors.Join(to.QueryRow(ctx, query).Scan(&got), <-counted); err != nil {
		return fmt.Errorf("fleet: compare %s: %w", p.name, err)
	}
	if got != want {
		return &DifferenceError{p.name}
	}
	return nil
}
