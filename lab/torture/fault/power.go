package fault

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/idem-go/idem/lab/torture/cluster"
)

// ErrNotRecovered is the error of a power loss after which the server does not start: its data is corrupt, which is what
// fsync=off asks for.
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
