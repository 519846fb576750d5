package measure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ProcessorTime is what processes have used. What the kernel does for a message, from one end of a loopback connection to the
// other, is counted where it happens: as a rule, with the sender.
type ProcessorTime struct{ Client, Server time.Duration }

// Minus is what was used since before.
func (t ProcessorTime) Minus(before ProcessorTime) ProcessorTime {
	return ProcessorTime{t.Client - before.Client, t.Server - before.Server}
}

// Clock reads the processor time of this process and of the sessions of a database.
type Clock struct {
	Admin    *pgxpool.Pool
	Database string
}

// ErrNoClock says that the kernel does not tell the processor time of other processes as exactly as it takes.
var ErrNoClock = errors.New("no /proc with schedstat: the processor time of a server is read on Linux only")

// Read reads it.
func (c Clock) Read(ctx context.Context) (t ProcessorTime, err error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return t, err
	}
	t.Client = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	pids, err := c.Sessions(ctx)
	if err != nil {
		return t, err
	}
	if _, err := onProcessor(os.Getpid()); errors.Is(err, fs.ErrNotExist) {
		return t, ErrNoClock
	}
	for _, pid := range pids {
		used, err := onProcessor(pid)
		if errors.Is(err, fs.ErrNotExist) { // whoever made the database has just left
			continue
		}
		if err != nil {
			return t, err
		}
		t.Server += used
	}
	return t, nil
}

// Sessions are the processes of the server that work for the database.
func (c Clock) Sessions(ctx context.Context) (pids []int, err error) {
	rows, err := c.Admin.Query(ctx, "select pid from pg_stat_activity where datname = $1 and backend_type = 'client backend'", c.Database)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, rows.Err()
}

// onProcessor is how long a process of one thread was on a processor, in nanoseconds.
func onProcessor(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(stat), " ")
	ns, err := strconv.ParseInt(first, 10, 64)
	return time.Duration(ns), err
}
