package main

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/sidebyside"
)

// server is a Postgres of our own.
type server struct{ *sidebyside.Server }

// database makes one for a contestant, and returns its address.
func (s *server) database(ctx context.Context, c contestant.Contestant) (dsn string, err error) {
	if dsn, err = s.Database(ctx, contestant.Schema, c.Prepare); err != nil {
		return "", fmt.Errorf("%s: %w", c.Name, err)
	}
	return dsn, nil
}
