// Package config has the configuration of a worker process, and opens its connections.
package config

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
)

// Config is the configuration of a worker. The supervisor sends it as JSON to the standard input of
// the worker. The worker exits when that input is closed.
type Config struct {
	Slot, Incarnation int
	Seed              uint64
	Start             time.Duration // start of the run, by the clock of package history
	File              string        // the history to write
	DSN               string
	Pooled            bool // DSN is that of a pooler in transaction mode
	Prepares          bool // the pooler supports prepared statements
	Goroutines        int
	Keys              int // number of keys in use at one time, in each scope

	Bank   string        // address of the bank; selects package checkout
	Broker string        // address of the broker; selects package messaging
	Quiet  bool          // in a run of messages: no failures are injected
	Direct bool          // in a run of messages: there is no broker, and package direct passes the messages on
	Finish time.Duration // if not 0: only finish what other workers left, and take at most this time
}

// KeyLife is how long a key is in use.
const KeyLife = time.Second

// Op returns the identifier of the n-th call of the process. 0 stands for the process itself.
func (c *Config) Op(n uint32) history.Op { return history.NewOp(c.Slot, c.Incarnation, n) }

// modes returns the exec modes to choose from. A pooler in transaction mode allows prepared
// statements only if it supports them itself.
func (c *Config) modes() []pgx.QueryExecMode {
	safe := []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe}
	switch {
	case c.Pooled && c.Prepares:
		return append(safe, pgx.QueryExecModeCacheStatement)
	case c.Pooled:
		return safe
	}
	return append(safe, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec)
}

// Pools opens the two pools of a worker. Calls of different pools do not wait for one another in
// memory, so that duplicates of one process also meet in the database.
func (c *Config) Pools() ([]*pgxpool.Pool, error) {
	first, err := c.Pool(0, 3)
	if err != nil {
		return nil, err
	}
	second, err := c.Pool(1, 6)
	return []*pgxpool.Pool{first, second}, err
}

// Pool opens the pool with number n. The exec mode depends on the number and on the process.
func (c *Config) Pool(n int, maxConns int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = maxConns
	config.ConnConfig.ConnectTimeout = 2 * time.Second
	config.ConnConfig.RuntimeParams["application_name"] = fmt.Sprint(ledger.Application(c.Pooled), " ", c.Op(0).Process())
	choice := c.modes()
	config.ConnConfig.DefaultQueryExecMode = choice[(c.Slot+c.Incarnation+n)%len(choice)]
	return pgxpool.NewWithConfig(context.Background(), config)
}
