package runner

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

	"github.com/jackc/pgx/v5"
)

// Processor contains the processor times that this process (Client) and the sessions of a database
// (Server) have used. The kernel usually counts the transport of a message over the loopback
// interface as time of its sender.
type Processor struct{ Client, Server time.Duration }

// ErrNoClock means that the kernel does not report the processor time of other processes with
// enough precision.
var ErrNoClock = errors.New("no /proc with schedstat: the processor time of a server can be read on Linux only")

// Processor reads the processor time of this process and of the sessions of a database on the
// server. It returns ErrNoClock if the kernel does not provide /proc/PID/schedstat.
func (s *Server) Processor(ctx context.Context, database string) (p Processor, err error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return p, err
	}
	p.Client = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	rows, err := s.Admin.Query(ctx, "select pid from pg_stat_activity where datname = $1 and backend_type = 'client backend'", database)
	if err != nil {
		return p, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return p, err
	}
	if _, err := onProcessor(os.Getpid()); errors.Is(err, fs.ErrNotExist) {
		return p, ErrNoClock
	}
	for _, pid := range pids {
		used, err := onProcessor(pid)
		if errors.Is(err, fs.ErrNotExist) { // the session ended after the query on pg_stat_activity
			continue
		}
		if err != nil {
			return p, err
		}
		p.Server += used
	}
	return p, nil
}

// onProcessor returns the processor time of the process pid, which must have a single thread.
func onProcessor(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(stat), " ")
	ns, err := strconv.ParseInt(first, 10, 64)
	return time.Duration(ns), err
}
