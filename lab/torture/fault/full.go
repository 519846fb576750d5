package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/cluster"
)

// fullDisk fills the disk, waits, and frees it. The server first answers with errors. When it
// cannot create the next segment of the log, it crashes, and it cannot recover until there is
// space.
func fullDisk(ctx context.Context, i *injection) error {
	err := i.disk.fill()
	i.strike()
	if err == nil {
		i.detail("the server refuses what does not fit")
		if hurry(ctx, i.Cluster) != nil {
			i.detail("the server goes down")
		}
		sleep(ctx, i.between(100*time.Millisecond, 2*time.Second))
	}
	return errors.Join(err, i.disk.free(), i.revive(ctx))
}

// hurry switches through the existing segments of the log, so that the server needs a new one at
// once and not minutes later. It returns an error if the server crashes.
func hurry(ctx context.Context, c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, pointLimit)
	defer cancel()
	return c.Do(ctx, func(conn *pgx.Conn) error {
		for range 8 {
			if _, err := conn.Exec(ctx, "select pg_logical_emit_message(false, 'torture', ''), pg_switch_wal()"); err != nil {
				return err
			}
		}
		return nil
	})
}

// ErrNotRecovered reports that the server does not start after a power loss, because its data is
// corrupt. A server with fsync=off fails in this way.
var ErrNotRecovered = errors.New("the server has not recovered from the loss of power")

// losePower discards what was not synced, kills the server, remounts the disk, and starts the
// server. The file system replays its journal at the mount, and the server recovers from its log.
func losePower(ctx context.Context, i *injection) error {
	if err := i.disk.powerOff(); err != nil {
		return err
	}
	i.strike()
	i.Cluster.Primary().Kill()
	if err := errors.Join(i.disk.unmount(), i.disk.mount()); err != nil {
		return err
	}
	if err := i.revive(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrNotRecovered, err)
	}
	return nil
}
