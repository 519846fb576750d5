// Package demo does to the orders service what real life does, and then reads the books.
//
// The service is a black box to it: processes that it starts, an HTTP port, and the tables. So are the bank, whose books it asks for, the broker, and fulfilment. Each accident comes from
// outside: a network that cuts a connection, a kill -9, a row that is locked for a while so that a request stands still
// where it can be hit. The service has no hook for any of this. The clients are those of package idemclient: they ask
// again by themselves, so that an act is one call, however many attempts that takes.
//
// Nothing waits for its moment by sleeping. A request was written when net/http says so, it is inside its transaction when
// Postgres says so, and its answer is on the way when the first bytes of it are there.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Config says what to shake and where to look.
type Config struct {
	// Command returns the command that starts a part: service, bank, broker or fulfilment. It takes its address from -listen, and
	// begins what it prints with "listening on " and its URL. It finds the others by BANK_URL, BROKER_URL and SHOP_URL.
	Command func(part string) []string

	// DatabaseURL and FulfilmentDatabaseURL lead to the databases of service and fulfilment, which get them by the variables of
	// these names; and WebhookSecret is what they share.
	DatabaseURL, FulfilmentDatabaseURL, WebhookSecret string

	// Out is where the table goes.
	Out io.Writer

	// Acts are parts of the names of those to play. All are, if there is none.
	Acts []string
}

// ErrBroken says that the service did not keep a promise. The table says which.
var ErrBroken = errors.New("a promise was broken")

const (
	runLimit = 5 * time.Minute // of which a machine at leisure needs ten seconds
	actLimit = time.Minute
)

// Run plays the acts one after the other and prints a line for each. It returns ErrBroken if one of them went wrong, and
// leaves no process behind, whatever happens.
func Run(ctx context.Context, config Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not done within %v", runLimit))
	defer cancel()
	s := &stage{config: config}
	defer s.close()
	err := s.open(ctx)
	if err == nil {
		err = s.perform(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // whatever failed, failed because of that
	}
	return err
}

// perform plays every act even if an earlier one went wrong: what else is broken helps to see why.
func (s *stage) perform(ctx context.Context) error {
	opening, err := s.readBooks(ctx)
	if err != nil {
		return err
	}
	table := table{out: s.config.Out}
	table.begin()
	for _, act := range s.config.chosen() {
		if err := s.revive(ctx); err != nil {
			return err
		}
		got, note, err := s.play(ctx, act)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		table.row(act.name, got, note, err)
	}
	told, err := s.told(ctx, opening)
	if err != nil {
		return err
	}
	closing, err := s.readBooks(ctx)
	if err != nil {
		return err
	}
	if !table.end(closing.since(opening), told) {
		s.printLogs()
		return ErrBroken
	}
	return nil
}

// chosen are the acts to play.
func (c Config) chosen() []act {
	if len(c.Acts) == 0 {
		return acts
	}
	return slices.DeleteFunc(slices.Clone(acts), func(a act) bool {
		return !slices.ContainsFunc(c.Acts, func(part string) bool { return strings.Contains(a.name, part) })
	})
}

// play plays one act, and holds it to what was counted at the clients and what is in the books.
func (s *stage) play(ctx context.Context, act act) (count, string, error) {
	s.reset()
	before, err := s.readBooks(ctx)
	if err != nil {
		return count{}, "", err
	}
	bounded, cancel := context.WithTimeout(ctx, actLimit)
	defer cancel()
	note, err := act.play(bounded, s)
	after, errAfter := s.readBooks(ctx)
	if errAfter != nil {
		return s.count, note, errors.Join(err, errAfter)
	}
	change := after.since(before)
	s.count.created, s.count.charges = change.Orders, change.Charges
	if err == nil && s.count != act.want {
		err = fmt.Errorf("counted %v, want %v", s.count, act.want)
	}
	return s.count, note, errors.Join(err, change.balance())
}
