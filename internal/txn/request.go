package txn

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Request is a statement that shares a round trip with others. Queue adds the statement and Read
// reads its answer.
type Request interface {
	Queue(*roundtrip.Trip)
	Read(*roundtrip.Trip)
}

// Ask sends requests in one round trip on a connection that no Engine has opened.
func Ask(ctx context.Context, conn *pgx.Conn, requests ...Request) error {
	return ask(ctx, conn, requests)
}

// ask sends requests in one round trip.
func ask(ctx context.Context, conn *pgx.Conn, requests []Request) error {
	trip := roundtrip.On(conn)
	queue(trip, requests)
	trip.Send(ctx)
	read(trip, requests)
	return AsUnsupported(trip.End())
}

func queue(trip *roundtrip.Trip, requests []Request) {
	for _, r := range requests {
		r.Queue(trip)
	}
}

func read(trip *roundtrip.Trip, requests []Request) {
	for _, r := range requests {
		r.Read(trip)
	}
}

// command is the SQL of a statement without parameters and results.
type command string

func (c command) Queue(trip *roundtrip.Trip) { trip.Exec(string(c)) }
func (c command) Read(trip *roundtrip.Trip)  { trip.Skip() }

// execute sends commands in one round trip.
func execute(ctx context.Context, conn *pgx.Conn, commands ...string) error {
	requests := make([]Request, len(commands))
	for i, c := range commands {
		requests[i] = command(c)
	}
	return ask(ctx, conn, requests)
}

var (
	begin  = roundtrip.Command("idem_begin", "begin")
	commit = roundtrip.Command("idem_commit", "commit")
)

// beginSQL returns the BEGIN for these options. pgx reveals the text only through a batch.
func beginSQL(options pgx.TxOptions) string {
	batch := &pgx.Batch{}
	batch.BeginTx(options)
	return batch.QueuedQueries[0].SQL
}

// commitStatement is the COMMIT of a transaction.
type commitStatement struct {
	sql     string // pgx.TxOptions.CommitQuery, if there is one
	tag     pgconn.CommandTag
	reached bool // all requests before COMMIT succeeded
}

func (c *commitStatement) Queue(trip *roundtrip.Trip) {
	if c.sql == "" {
		trip.Add(commit)
		return
	}
	trip.Exec(c.sql)
}

// chain returns requests that begin another transaction right after COMMIT: see Sublease.Chained.
func (c *commitStatement) chain(requests []Request) []Request {
	if c.sql == "" {
		c.sql = "commit and chain"
		return requests
	}
	return append(requests, command("begin"))
}

func (c *commitStatement) Read(trip *roundtrip.Trip) {
	c.reached = trip.Err() == nil
	c.tag = trip.Skip()
}
