package txn

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/roundtrip"
)

// answer is what came of a round trip on another goroutine.
type answer struct {
	err      error
	panicked any // a handler of the caller's, for a notice or a notification
}

// get returns the error, or goes on with the panic.
func (a answer) get() error {
	if a.panicked != nil {
		panic(a.panicked)
	}
	return a.err
}

// answered sends the answer of a round trip, also if a handler of the caller's panics or ends the goroutine.
func answered(to chan<- answer, trip func() error) {
	a := answer{err: &UnknownError{Err: errors.New("a handler of notices has ended the goroutine")}}
	defer func() {
		a.panicked = recover()
		to <- a
	}()
	a.err = trip()
}

func askUncancelled(conn *pgx.Conn, requests []Request) error {
	return sendUncancelled(conn, requests).read()
}

// uncancelled is a round trip that no CancelRequest can disturb. pgx sends one whenever it gives a connection up in the middle
// of a query, also for a network error. It takes the secret from the slice that SecretKey returns, so what it sends meanwhile
// is none that the server knows.
type uncancelled struct {
	conn     *pgx.Conn
	trip     *roundtrip.Trip
	requests []Request
}

func sendUncancelled(conn *pgx.Conn, requests []Request) uncancelled {
	scramble(conn.PgConn().SecretKey())
	u := uncancelled{conn, roundtrip.On(conn), requests}
	queue(u.trip, requests)
	u.trip.Send(context.Background())
	return u
}

// read reads the answers.
func (u uncancelled) read() error {
	read(u.trip, u.requests)
	err := u.trip.End()
	if !u.conn.IsClosed() {
		scramble(u.conn.PgConn().SecretKey())
	}
	return err
}

// scramble makes a secret another one, or makes it itself again.
func scramble(secret []byte) {
	for i := range secret {
		secret[i] ^= 0xa5
	}
}
