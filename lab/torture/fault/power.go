package fault

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/idem-go/idem/lab/torture/cluster"
)

// ErrNotRecovered reports that the server does not start after a power loss, because its data is
// corrupt. A server with fsync=off fails in this way.
var ErrNotRecovered = errors.New("the server has not recovered from the loss of power")

func powerLoss() Leg {
	return Leg{
		Name:     PowerLoss,
		About:    "the disk loses all that was not synced, and the server with it: nothing acknowledged is lost",
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
