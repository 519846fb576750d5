package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/torture/cluster"
)

func clockJumps() Leg {
	return Leg{
		Name:       Clock,
		About:      "the clock of the database jumps by up to an hour, forward or back, for up to 2 s",
		Possible:   clockPossible(),
		MovesClock: true,
		stage: func(ctx context.Context, s *Scene, opts LegOptions) error {
			c, err := newClock()
			if err != nil {
				return err
			}
			s.closers = append(s.closers, c.close)
			s.pause = time.Second
			s.act = c.jump
			return s.start(ctx, opts, cluster.Options{Env: c.env()})
		},
	}
}

// clock is the time of day as libfaketime tells it.
type clock struct{ dir, library string }

func newClock() (*clock, error) {
	library, err := optional.Find("libfaketime")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "idem-clock-")
	if err != nil {
		return nil, err
	}
	c := &clock{dir, library}
	// The server may run as another user, who has to read it.
	return c, errors.Join(os.Chmod(dir, 0o755), c.set(0))
}

// env makes a program ask the clock each time. What only measures how much time goes by is left alone.
func (c *clock) env() []string {
	return []string{"LD_PRELOAD=" + c.library, "FAKETIME_TIMESTAMP_FILE=" + c.file(), "FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1"} // the name depends on the version
}

func (c *clock) file() string { return filepath.Join(c.dir, "offset") }

// set makes the clock differ from the real one, at one moment for all who ask.
func (c *clock) set(offset time.Duration) error {
	next := c.file() + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+d\n", int(offset.Seconds())), 0o644); err != nil {
		return err
	}
	return os.Rename(next, c.file())
}

func (c *clock) close() error { return os.RemoveAll(c.dir) }

func (c *clock) jump(ctx context.Context, i *injection) error {
	offset := i.between(-time.Hour, time.Hour).Round(time.Second)
	if i.rng.IntN(2) == 0 {
		offset = i.between(-10*time.Second, 10*time.Second).Round(time.Second)
	}
	i.note(func(e *Event) { e.MovesClock = true })
	i.detail("by %v", offset)
	if err := c.set(offset); err != nil {
		return err
	}
	sleep(ctx, i.between(100*time.Millisecond, 2*time.Second))
	return c.set(0)
}

// clockPossible is nil where libfaketime does what it should to a program that is no server.
var clockPossible = sync.OnceValue(func() error {
	c, err := newClock()
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.set(time.Hour); err != nil {
		return err
	}
	date := exec.Command("date", "+%s")
	date.Env = append(os.Environ(), c.env()...)
	out, err := date.Output()
	if err != nil {
		return fmt.Errorf("libfaketime: %w", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return err
	}
	if ahead := time.Until(time.Unix(seconds, 0)); ahead < 59*time.Minute {
		return fmt.Errorf("libfaketime moves the clock by %v where it should be an hour", ahead)
	}
	return nil
})
