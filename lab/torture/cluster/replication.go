package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Replication is whether there is a standby, and whether a commit waits for it.
type Replication int

const (
	NoStandby Replication = iota
	// Asynchronous replication may lose what was acknowledged shortly before the primary died.
	Asynchronous
	// Synchronous replication does not acknowledge what the standby has not written to its disk.
	Synchronous
)

// standbyName is what synchronous_standby_names has.
const standbyName = "standby"

// AddStandby makes a standby of the primary and returns when it streams.
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

// synchronous is what synchronous_standby_names is when all is well.
func (c *Cluster) synchronous() string {
	if c.opts.Standby == Synchronous && c.standby != nil {
		return standbyName
	}
	return ""
}

// SetSynchronous makes COMMIT on the primary wait for the standbys named, for one that does not exist if the name is
// nobody's.
func (c *Cluster) SetSynchronous(ctx context.Context, names string) error {
	return c.Do(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "alter system set synchronous_standby_names = '"+names+"'"); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "select pg_reload_conf()")
		return err
	})
}

// ResetSynchronous undoes SetSynchronous.
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

// Isolate cuts all clients off, until a Failover.
func (c *Cluster) Isolate() { c.door.lead("") }

// Failover promotes the standby and leads clients to it. The primary, which has to be dead, is fenced: it is never
// started again, and nothing leads to it. The cluster then has no standby until AddStandby.
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
