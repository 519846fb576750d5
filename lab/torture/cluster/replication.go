package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Replication selects whether there is a standby and whether a commit waits for it.
type Replication int

const (
	NoStandby Replication = iota
	// Asynchronous replication may lose commits that were acknowledged shortly before the primary
	// died.
	Asynchronous
	// Synchronous replication acknowledges a commit after the standby has written it to disk.
	Synchronous
)

// standbyName is the application name of the standby, for synchronous_standby_names.
const standbyName = "standby"

// AddStandby creates a standby and returns when it streams. It fails if there is one already.
func (c *Cluster) AddStandby(ctx context.Context) error {
	if c.standby != nil {
		return errors.New("there is a standby already")
	}
	opts, err := c.nextServer()
	if err != nil {
		return err
	}
	if c.standby, err = c.primary.Standby(ctx, standbyName, opts); err != nil {
		return fmt.Errorf("standby: %w", err)
	}
	if err := c.SetSynchronous(ctx, c.synchronous()); err != nil {
		return err
	}
	return c.awaitStreaming(ctx)
}

// synchronous returns the regular value of synchronous_standby_names.
func (c *Cluster) synchronous() string {
	if c.opts.Standby == Synchronous && c.standby != nil {
		return standbyName
	}
	return ""
}

// SetSynchronous sets synchronous_standby_names on the primary. With a name that no standby has,
// every COMMIT waits.
func (c *Cluster) SetSynchronous(ctx context.Context, names string) error {
	return c.Do(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "alter system set synchronous_standby_names = '"+names+"'"); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "select pg_reload_conf()")
		return err
	})
}

// ResetSynchronous sets synchronous_standby_names to its regular value.
func (c *Cluster) ResetSynchronous(ctx context.Context) error {
	return c.SetSynchronous(ctx, c.synchronous())
}

func (c *Cluster) awaitStreaming(ctx context.Context) error {
	want := "async"
	if c.opts.Standby == Synchronous {
		want = "sync"
	}
	return c.Do(ctx, func(conn *pgx.Conn) error {
		for {
			var streams bool
			err := conn.QueryRow(ctx, `select exists (select from pg_stat_replication
				where application_name = $1 and state = 'streaming' and sync_state = $2)`, standbyName, want).Scan(&streams)
			if err != nil || streams {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// Isolate disconnects all clients and refuses new ones until Failover.
func (c *Cluster) Isolate() { c.door.lead("") }

// Failover promotes the standby and routes clients to it. The old primary must be dead. It is
// fenced: it is never started again and gets no connections. The cluster then has no standby until
// AddStandby.
func (c *Cluster) Failover(ctx context.Context) error {
	switch {
	case c.standby == nil:
		return errors.New("there is no standby to promote")
	case c.primary.Running():
		return errors.New("the primary is alive")
	}
	c.door.lead("")
	if err := c.standby.Promote(ctx); err != nil {
		return err
	}
	c.fenced = append(c.fenced, c.primary)
	c.primary, c.standby = c.standby, nil
	c.door.lead(serverAddress(c.primary))
	return nil
}
