package fault

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/cluster"
)

// smallWAL are settings that keep the write-ahead log small enough for a small disk.
var smallWAL = []string{"min_wal_size=32MB", "max_wal_size=64MB"}

func dataDiskFull() Leg {
	return Leg{
		Name:     DiskFullData,
		Possible: diskPossible(),
		stage: func(ctx context.Context, s *Scene, opts LegOptions) error {
			return s.onDisk(ctx, 384+opts.growth(), opts, fullDisk, func(folder string) cluster.Options {
				return cluster.Options{Data: filepath.Join(folder, "data"), Settings: smallWAL}
			})
		},
	}
}

func walDiskFull() Leg {
	return Leg{
		Name:     DiskFullWAL,
		Possible: diskPossible(),
		stage: func(ctx context.Context, s *Scene, opts LegOptions) error {
			return s.onDisk(ctx, 192, opts, fullDisk, func(folder string) cluster.Options {
				return cluster.Options{WAL: filepath.Join(folder, "wal"), Settings: smallWAL}
			})
		},
	}
}

// onDisk starts the cluster of a leg with a part of it on a disk of its own: needs gets a directory
// on that disk and returns the options that use it. The disk is synced before the first act.
func (s *Scene) onDisk(ctx context.Context, mebibytes int64, opts LegOptions,
	act func(context.Context, *injection, *disk) error, needs func(folder string) cluster.Options) error {
	d, err := newDisk(mebibytes)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, d.close)
	s.prepare = d.sync
	s.act = func(ctx context.Context, i *injection) error { return act(ctx, i, d) }
	folder, err := d.folder("postgres")
	if err != nil {
		return err
	}
	return s.start(ctx, opts, needs(folder))
}

// fullDisk fills the disk, waits, and frees it. The server first answers with errors. When it
// cannot create the next segment of the log, it crashes, and it cannot recover until there is
// space.
func fullDisk(ctx context.Context, i *injection, d *disk) error {
	err := d.fill()
	i.strike()
	if err == nil {
		i.detail("the server refuses what does not fit")
		if hurry(ctx, i.Cluster) != nil {
			i.detail("the server goes down")
		}
		sleep(ctx, i.between(100*time.Millisecond, 2*time.Second))
	}
	return errors.Join(err, d.free(), i.revive(ctx))
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

func powerLoss() Leg {
	return Leg{
		Name:     PowerLoss,
		Possible: diskPossible(),
		stage: func(ctx context.Context, s *Scene, opts LegOptions) error {
			s.pause = 3 * time.Second
			return s.onDisk(ctx, 512+opts.growth(), opts, losePower, func(folder string) cluster.Options {
				return cluster.Options{Data: filepath.Join(folder, "data"), Settings: smallWAL}
			})
		},
	}
}

// losePower discards what was not synced, kills the server, remounts the disk, and starts the
// server. The file system replays its journal at the mount, and the server recovers from its log.
func losePower(ctx context.Context, i *injection, d *disk) error {
	if err := d.powerOff(); err != nil {
		return err
	}
	i.strike()
	i.Cluster.Primary().Kill()
	if err := errors.Join(d.unmount(), d.mount()); err != nil {
		return err
	}
	if err := i.revive(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrNotRecovered, err)
	}
	return nil
}
