package ui

import (
	"context"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// mostInFlight is the maximum number of sessions on the page.
const mostInFlight = 100

// readFlight reads the sessions that hold keys at this moment.
func readFlight(ctx context.Context, tx pgx.Tx, _ url.Values) (any, error) {
	// The query of Holders succeeds without the schema of idem. This one does not.
	if _, err := tx.Exec(ctx, "SELECT FROM idem.leases LIMIT 0"); err != nil {
		return nil, err
	}
	return record.Holders(ctx, tx, 0, mostInFlight)
}
