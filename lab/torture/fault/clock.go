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
)

// clock is a time of day that the torture controls. The servers see it through libfaketime, a
// preloaded library that reads the time from a file in dir.
type clock struct{ dir, library string }

// newClock returns a clock that shows the real time. It fails if libfaketime is not installed.
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
	// The server may run as another user, which needs to read the file.
	return c, errors.Join(os.Chmod(dir, 0o755), c.set(0))
}

// env returns the environment that makes a program use the clock. Without the cache, the program
// reads the file at every call, so that a jump takes effect at once. The monotonic clock stays
// real, because timeouts and sleeps are measured by it.
func (c *clock) env() []string {
	// The name of the last variable depends on the version of libfaketime, so both are set.
	return []string{"LD_PRELOAD=" + c.library, "FAKETIME_TIMESTAMP_FILE=" + c.file(), "FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1"}
}

func (c *clock) file() string { return filepath.Join(c.dir, "offset") }

// set moves the clock to offset from the real time. The new file replaces the old one by a rename,
// so that all processes see the jump at the same moment and no process reads half a file.
func (c *clock) set(offset time.Duration) error {
	next := c.file() + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+d\n", int(offset.Seconds())), 0o644); err != nil {
		return err
	}
	return os.Rename(next, c.file())
}

func (c *clock) close() error { return os.RemoveAll(c.dir) }

// jump moves the clock forward or back by up to an hour, or by up to 10 s half of the time. It
// restores the clock after at most 2 s. Small jumps matter because they are in the range of the
// TTLs that the workers use.
func jump(ctx context.Context, i *injection) error {
	offset := i.between(-time.Hour, time.Hour).Round(time.Second)
	if i.rng.IntN(2) == 0 {
		offset = i.between(-10*time.Second, 10*time.Second).Round(time.Second)
	}
	i.note(func(e *Event) { e.MovesClock = true })
	if err := i.clock.set(offset); err != nil {
		return err
	}
	sleep(ctx, i.between(100*time.Millisecond, 2*time.Second))
	return i.clock.set(0)
}

// clockPossible returns nil if libfaketime works on this machine. To learn that, it runs date with
// a clock that is an hour ahead.
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
