package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/txn"
)

const (
	readTimeout  = 6 * time.Minute  // for a transaction that reads: longer than its statement_timeout
	writeTimeout = 30 * time.Second // for a transaction that only writes
	checkTimeout = 2 * time.Second  // for a statement on small tables

	minRetryPause = 50 * time.Millisecond // first pause after an error of the database
	maxRetryPause = 5 * time.Second
)

var (
	errNoPool = errors.New("outbox: pool is nil")
	errSlow   = errors.New("the server did not answer in time")
)

// querier makes round trips to the database. It is a session, or an engine with a pool.
type querier interface {
	Query(ctx context.Context, requests ...txn.Request) error
}

// query makes one round trip that may take up to checkTimeout.
func query(ctx context.Context, on querier, requests ...txn.Request) error {
	bounded, cancel := context.WithTimeoutCause(ctx, checkTimeout, errSlow)
	defer cancel()
	return on.Query(bounded, requests...)
}

// command is a statement without parameters and without results.
type command string

// Queue implements txn.Request.
func (c command) Queue(trip *roundtrip.Trip) { trip.Exec(string(c)) }

// Read implements txn.Request.
func (c command) Read(trip *roundtrip.Trip) { trip.Skip() }

// The isolation level is explicit, because the default of the database may be stricter. Under
// SERIALIZABLE, the relay would cause serialization failures in transactions that add messages.
const (
	begin  = command("begin isolation level read committed")
	commit = command("commit")
)

// inTransaction wraps requests into one transaction with the timeouts of a relay.
func inTransaction(requests ...txn.Request) []txn.Request {
	return slices.Concat([]txn.Request{begin, &db.LimitRelay{}}, requests, []txn.Request{commit})
}

// hint adds to err what its reader can do about it. It returns nil if err is nil.
func hint(err error) error {
	switch {
	case err == nil:
		return nil
	case txn.HasCode(err, "42P01", "3F000", "42703"):
		return fmt.Errorf("outbox: the schema is missing or old: %w; run the migrations of package migrations", err)
	case txn.HasCode(err, "42501"):
		return fmt.Errorf("outbox: the role lacks a privilege: %w; docs/operate.md lists the privileges", err)
	}
	return fmt.Errorf("outbox: %w", txn.AsUnsupported(err))
}
