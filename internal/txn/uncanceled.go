package txn

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/roundtrip"
)

// answer is the result of a round trip on another goroutine.
type answer struct {
	err      error
	panicked any // the panic of the application's handler for a notice or a notification
}

// get returns the error, or continues the panic.
func (a answer) get() error {
	if a.panicked != nil {
		panic(a.panicked)
	}
	return a.err
}

// answered runs trip and sends its answer, even if a notice handler of the application panics or
// ends the goroutine.
func answered(to chan<- answer, trip func() error) {
	a := answer{err: &UnknownError{Err: errors.New("a handler of notices has ended the goroutine")}}
	defer func() {
		a.panicked = recover()
		to <- a
	}()
	a.err = trip()
}

func askUncanceled(conn *pgx.Conn, requests []Request) error {
	return sendUncanceled(conn, requests).read()
}

// uncanceled is a round trip that pgx cannot cancel. pgx sends a CancelRequest whenever it closes a
// connection in the middle of a query, for example after a network error. The CancelRequest
// contains the secret key in the slice that SecretKey returns. During the round trip that slice is
// scrambled, so that the server ignores the CancelRequest.
type uncanceled struct {
	conn     *pgx.Conn
	trip     *roundtrip.Trip
	requests []Request
}

func sendUncanceled(conn *pgx.Conn, requests []Request) uncanceled {
	scramble(conn.PgConn().SecretKey())
	u := uncanceled{conn, roundtrip.On(conn), requests}
	queue(u.trip, requests)
	u.trip.Send(context.Background())
	return u
}

// read reads the answers, and restores the secret key that sendUncanceled has scrambled.
func (u uncanceled) read() error {
	read(u.trip, u.requests)
	err := u.trip.End()
	if !u.conn.IsClosed() {
		scramble(u.conn.PgConn().SecretKey())
	}
	return err
}

// scramble changes a secret. Calling it again restores the secret.
func scramble(secret []byte) {
	for i := range secret {
		secret[i] ^= 0xa5
	}
}
