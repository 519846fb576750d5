package txn

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
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

// answerUncancelled always sends an answer, also if a handler of the caller's panics or ends the goroutine.
func answerUncancelled(conn *pgx.Conn, requests []Request, to chan<- answer) {
	a := answer{err: &UnknownError{Err: errors.New("a handler of notices has ended the goroutine")}}
	defer func() {
		a.panicked = recover()
		to <- a
	}()
	a.err = askUncancelled(conn, requests)
}

// askUncancelled makes a round trip that no CancelRequest can disturb. pgx sends one whenever it gives a connection up in
// the middle of a query, also for a network error. It takes the secret from the slice that SecretKey returns, so what it sends
// meanwhile is none that the server knows.
func askUncancelled(conn *pgx.Conn, requests []Request) error {
	secret := conn.PgConn().SecretKey()
	scramble(secret)
	err := ask(context.Background(), conn, requests)
	if !conn.IsClosed() {
		scramble(secret)
	}
	return err
}

// scramble makes a secret another one, or makes it itself again.
func scramble(secret []byte) {
	for i := range secret {
		secret[i] ^= 0xa5
	}
}
