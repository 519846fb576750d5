package ui

import (
	"context"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// flight is the data of the page of keys and operations in progress.
type flight struct {
	Claimers []record.Claimer
	Running  []record.Worked
	Limit    int
}

// mostInFlight is the maximum number of sessions, and of operations, on the page.
const mostInFlight = 100

func readFlight(ctx context.Context, tx pgx.Tx, _ url.Values) (any, error) {
	claimers, err := record.Claimers(ctx, tx, mostInFlight)
	if err != nil {
		return nil, err
	}
	running, err := record.WorkedOn(ctx, tx, mostInFlight)
	return flight{claimers, running, mostInFlight}, err
}
