// Package demo injects faults into the orders service and then checks the books.
//
// It treats the service as a black box: processes that it starts, an HTTP port, and the tables. The
// same holds for the bank, the broker and fulfilment. All faults come from outside: a network that
// cuts a connection, a kill -9, or a locked row that makes a request wait where the demonstration
// needs it. The service has no hook for faults. The clients use package idemclient, which retries
// by itself. So an act makes one call regardless of the number of attempts.
//
// No act sleeps to wait for the right moment: it asks Postgres whether a request is inside its
// transaction.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Config is the configuration of Run.
type Config struct {
	// Command returns the command that starts a part: service, bank, broker or fulfilment. The part
	// must accept its address with the flag -listen, and must first print "listening on " and its
	// URL. It finds the other parts by the environment variables BANK_URL, BROKER_URL and SHOP_URL.
	Command func(part string) []string

	// DatabaseURL and FulfilmentDatabaseURL are the URLs of the databases of the shop and of
	// fulfilment. WebhookSecret is the secret with which fulfilment signs its webhooks to the shop.
	// The parts receive all three in the environment variables DATABASE_URL,
	// FULFILMENT_DATABASE_URL and WEBHOOK_SECRET.
	DatabaseURL, FulfilmentDatabaseURL, WebhookSecret string

	// Out receives the table of results.
	Out io.Writer
}

// ErrBroken is returned by Run if the service broke a promise. The printed table shows which
// promise.
var ErrBroken = errors.New("a promise was broken")

const (
	runLimit = 5 * time.Minute // an idle machine needs ten seconds
	actLimit = time.Minute
)

// Run plays the acts one after another and prints a line for each. It returns ErrBroken if an act
// failed. Run always stops the processes that it has started.
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
		return context.Cause(ctx) // the end of ctx has caused err
	}
	return err
}

// perform plays all acts, then checks what fulfilment and the shop recorded. It continues after an
// act that failed, because the later results help to find the cause.
func (s *stage) perform(ctx context.Context) error {
	opening, err := s.readBooks(ctx)
	if err != nil {
		return err
	}
	table := table{out: s.config.Out}
	table.begin()
	for _, act := range acts {
		if err := s.revive(ctx); err != nil {
			return err
		}
		got, note, err := s.play(ctx, act)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		table.row(act.name, got, note, err)
	}
	delivered, err := s.deliveries(ctx, opening)
	if err != nil {
		return err
	}
	closing, err := s.readBooks(ctx)
	if err != nil {
		return err
	}
	if !table.end(closing.since(opening), delivered) {
		s.printLogs()
		return ErrBroken
	}
	return nil
}

// play plays one act. It compares the counts with the counts in act.want, and checks that the books
// balance.
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
	// Orders and charges are counted in the books, not by the clients: a client may report an order
	// that does not exist.
	change := after.since(before)
	s.count.created, s.count.charges = change.Orders, change.Charges
	if err == nil && s.count != act.want {
		err = fmt.Errorf("counted %v, want %v", s.count, act.want)
	}
	return s.count, note, errors.Join(err, change.balance())
}
