package command

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// session is the state of a running command. It creates the connection pool when a command first
// needs it, because some commands need no database.
type session struct {
	World
	ctx     context.Context
	globals *globals
	name    string // the last word of the command, such as "list"
	command string // all words of the command, such as "dead list"
	page    *page.Page
	pool    *pgxpool.Pool

	isUninterruptible atomic.Bool // whether the work in progress continues after a signal
}

// close closes the pool, and waits at most half a second, so that a server that does not answer
// cannot delay the exit. A statement that an interrupt ended has already been canceled by then.
func (s *session) close() {
	if s.pool == nil {
		return
	}
	closed := make(chan struct{})
	go func() { s.pool.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(500 * time.Millisecond):
	}
}

// inTx calls the function work in a transaction whose statements are limited by --timeout and by a
// short lock timeout. See record.Tx.
func (s *session) inTx(work func(context.Context, pgx.Tx) error) error {
	pool, err := s.connected()
	if err != nil {
		return err
	}
	return record.Tx(s.ctx, pool, time.Duration(s.globals.Timeout), func(tx pgx.Tx) error { return work(s.ctx, tx) })
}

// withTimeout returns a context that ends after --timeout.
func (s *session) withTimeout() (context.Context, context.CancelFunc) {
	if s.globals.Timeout == 0 {
		return context.WithCancel(s.ctx)
	}
	return context.WithTimeout(s.ctx, time.Duration(s.globals.Timeout))
}

// timedOut returns err. If --timeout has ended ctx, the returned error names the flag instead,
// because the error of the driver only says that a deadline was exceeded.
func (s *session) timedOut(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && s.ctx.Err() == nil {
		return fmt.Errorf("no answer within %v: raise --timeout, or run idem doctor", time.Duration(s.globals.Timeout))
	}
	return err
}

// connected returns the pool, and creates it at the first call. It checks only the form of the
// database address: the pool connects when the first statement needs a connection.
func (s *session) connected() (*pgxpool.Pool, error) {
	if s.pool != nil {
		return s.pool, nil
	}
	config, err := s.globals.Config(s.Getenv, s.name)
	if err == nil {
		s.pool, err = pgxpool.NewWithConfig(s.ctx, config)
	}
	return s.pool, err
}

// show writes the result of a command. With --json it encodes result; otherwise it calls text,
// which prints the result for a person.
func (s *session) show(result any, text func(*page.Page)) error {
	if !s.globals.JSON {
		text(s.page)
		return s.page.Err()
	}
	encoder := json.NewEncoder(s.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}

// progress replaces the status line at a terminal. It writes nothing if standard error is not a
// terminal. An empty format removes the line. The output begins with a carriage return and the
// escape sequence that erases the line.
func (s *session) progress(format string, args ...any) {
	if s.ErrIsTerminal && s.Getenv("TERM") != "dumb" {
		fmt.Fprintf(s.Stderr, "\r\x1b[K"+format, args...)
	}
}
