package txn

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Request is a statement that travels with others: with BEGIN, with COMMIT, or in between.
type Request interface {
	Queue(*roundtrip.Trip)
	Read(*roundtrip.Trip)
}

// ask makes one round trip of requests.
func ask(ctx context.Context, conn *pgx.Conn, requests []Request) error {
	trip := roundtrip.On(conn)
	queue(trip, requests)
	trip.Send(ctx)
	read(trip, requests)
	return Lacking(trip.End())
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

// command is a statement without parameters and results.
type command string

func (c command) Queue(trip *roundtrip.Trip) { trip.Exec(string(c)) }
func (c command) Read(trip *roundtrip.Trip)  { trip.Skip() }

// execute makes one round trip of commands.
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

// beginSQL returns the statement that begins a transaction with these options, which pgx only tells through a batch.
func beginSQL(options pgx.TxOptions) string {
	batch := &pgx.Batch{}
	batch.BeginTx(options)
	return batch.QueuedQueries[0].SQL
}

// commitStatement queues the COMMIT of a transaction.
type commitStatement struct {
	sql     string // of the caller's own, if there is one
	tag     pgconn.CommandTag
	reached bool // everything ahead of it was answered without an error
}

func (c *commitStatement) Queue(trip *roundtrip.Trip) {
	if c.sql == "" {
		trip.Add(commit)
		return
	}
	trip.Exec(c.sql)
}

// chain makes the next transaction begin with the end of this one.
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
