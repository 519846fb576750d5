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

// session is what a running command has at hand.
type session struct {
	World
	ctx     context.Context
	globals *globals
	name    string // the last word of the command
	command string // all of its words
	page    *page.Page
	pool    *pgxpool.Pool

	isUnbroken atomic.Bool // a signal waits for what is under way
}

func newSession(ctx context.Context, w World, g *globals, name string) *session {
	return &session{World: w, ctx: ctx, globals: g, name: name, page: page.New(w.Stdout, w.colours())}
}

// close takes leave of the server. A server that does not answer is not waited for: what was interrupted has been asked to end.
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

// connect opens the pool. Nothing is sent yet.
func (s *session) connect() (*pgxpool.Pool, error) {
	config, err := s.globals.Config(s.Getenv, s.name)
	if err != nil {
		return nil, err
	}
	s.pool, err = pgxpool.NewWithConfig(s.ctx, config)
	return s.pool, err
}

// limited runs work in a transaction that gives up after --timeout, does not wait long for locks, and does not depend on
// the settings of the session.
func (s *session) limited(work func(context.Context, pgx.Tx) error) error {
	pool, err := s.connected()
	if err != nil {
		return err
	}
	return record.Tx(s.ctx, pool, time.Duration(s.globals.Timeout), func(tx pgx.Tx) error { return work(s.ctx, tx) })
}

func (s *session) connected() (*pgxpool.Pool, error) {
	if s.pool != nil {
		return s.pool, nil
	}
	return s.connect()
}

// show writes a result, as JSON or as text writes it.
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

// progress tells a person at a terminal how far something is. It is nothing for a program. The last call takes it away.
func (s *session) progress(format string, args ...any) {
	if s.ErrIsTerminal && s.Getenv("TERM") != "dumb" {
		fmt.Fprintf(s.Stderr, "\r\x1b[K"+format, args...)
	}
}
