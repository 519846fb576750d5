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

// session is the environment of a running command.
type session struct {
	World
	ctx     context.Context
	globals *globals
	name    string // last word of the command
	command string // all words of the command
	page    *page.Page
	pool    *pgxpool.Pool

	isUnbroken atomic.Bool // a signal does not cancel the current work
}

func newSession(ctx context.Context, w World, g *globals, name string) *session {
	return &session{World: w, ctx: ctx, globals: g, name: name, page: page.New(w.Stdout, w.colours())}
}

// close closes the pool. It waits only briefly, because a server that does not answer would block
// it. Interrupted statements have been canceled before.
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

// connect creates the pool. The first statement opens a connection.
func (s *session) connect() (*pgxpool.Pool, error) {
	config, err := s.globals.Config(s.Getenv, s.name)
	if err != nil {
		return nil, err
	}
	s.pool, err = pgxpool.NewWithConfig(s.ctx, config)
	return s.pool, err
}

// limited calls work in a transaction of record.Tx, with the timeout of --timeout.
func (s *session) limited(work func(context.Context, pgx.Tx) error) error {
	pool, err := s.connected()
	if err != nil {
		return err
	}
	return record.Tx(s.ctx, pool, time.Duration(s.globals.Timeout), func(tx pgx.Tx) error { return work(s.ctx, tx) })
}

// connected returns the pool, and creates it at the first call.
func (s *session) connected() (*pgxpool.Pool, error) {
	if s.pool != nil {
		return s.pool, nil
	}
	return s.connect()
}

// show prints a result: as JSON with --json, and otherwise by calling text.
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

// progress shows the progress of a command on one line of a terminal. Without a terminal it prints
// nothing. A last call with an empty format erases the line.
func (s *session) progress(format string, args ...any) {
	if s.ErrIsTerminal && s.Getenv("TERM") != "dumb" {
		fmt.Fprintf(s.Stderr, "\r\x1b[K"+format, args...)
	}
}
