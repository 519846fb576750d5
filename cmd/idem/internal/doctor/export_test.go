package doctor

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Names returns the names of all checks of Examine, in order.
func Names() []string { return namesOf(checks) }

// VerifyNames returns the names of all checks that Verify can run, in order.
func VerifyNames() []string { return namesOf(slices.Concat(verifyChecks, againstChecks)) }

func namesOf(checks []check) (names []string) {
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

// Only runs the checks with the given names, and ignores unknown names.
func Only(ctx context.Context, pool *pgxpool.Pool, opts Options, names ...string) ([]Result, error) {
	return examine(ctx, pool, opts, only(names...), func(string, int, int) {})
}
