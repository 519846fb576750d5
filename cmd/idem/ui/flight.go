package ui

import (
	"context"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// flight are keys that are held at this moment.
type flight struct {
	Claimers []record.Claimer
	Running  []record.Worked
	Limit    int
}

// mostInFlight is how many sessions, and how many operations, are shown.
const mostInFlight = 100

func readFlight(ctx context.Context, tx pgx.Tx, _ url.Values) (any, error) {
	claimers, err := record.Claimers(ctx, tx, mostInFlight)
	if err != nil {
		return nil, err
	}
	running, err := record.WorkedOn(ctx, tx, mostInFlight)
	return flight{claimers, running, mostInFlight}, err
}
