package vitals

import (
	"time"

	"github.com/idem-go/idem/internal/vitals/db"
)

// InFlight are the transactions that have claimed keys and are not over.
type InFlight struct {
	Transactions int64                 `json:"transactions"`
	Keys         int64                 `json:"keys"`   // by their advisory locks, of which a transaction has 32 at most
	Oldest       Figure[time.Duration] `json:"oldest"` // how long the oldest transaction has been open; 0 if there is none
}

func inFlight(row db.InFlightRow) InFlight {
	flight := InFlight{Transactions: row.Transactions, Keys: row.Keys}
	switch oldest := time.Duration(row.Oldest) * time.Microsecond; {
	case row.Hidden == 0:
		flight.Oldest = exact(oldest)
	case row.Hidden < row.Transactions:
		flight.Oldest = estimate(oldest, "at least: some of the sessions are of other roles (pg_read_all_stats shows them)")
	default:
		flight.Oldest = unknown[time.Duration]("the sessions are of other roles: pg_read_all_stats shows them")
	}
	return flight
}
