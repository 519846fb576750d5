package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/roundtrip"
)

// request is the interface of all requests.
type request interface {
	Queue(*roundtrip.Trip)
	Read(*roundtrip.Trip)
}

// ask executes requests in one round trip.
func ask(ctx context.Context, conn *pgx.Conn, requests ...request) error {
	trip := roundtrip.On(conn)
	for _, r := range requests {
		r.Queue(trip)
	}
	trip.Send(ctx)
	for _, r := range requests {
		r.Read(trip)
	}
	return trip.End()
}
