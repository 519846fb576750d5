package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is one process of a server, such as a session's backend or the checkpointer.
type Process struct {
	PID   int
	Title string // the title that ps shows: "postgres: checkpointer "
	start string // start time in /proc, which distinguishes processes that reuse a PID
}

// Processes returns the child processes of the postmaster. It returns nil on systems other than
// Linux.
func (s *Server) Processes() []Process {
	pid := s.PID()
	if pid == 0 {
		return nil
	}
	var children []Process
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := readStat(path)
		if err != nil || stat.parent != pid {
			continue
		}
		title, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		children = append(children, Process{
			PID: stat.pid, Title: strings.ReplaceAll(strings.TrimRight(string(title), "\x00"), "\x00", " "), start: stat.start,
		})
	}
	return children
}

// Alive reports whether the process is running. A zombie is not alive.
func (p Process) Alive() bool {
	stat, err := readStat(fmt.Sprintf("/proc/%d/stat", p.PID))
	return err == nil && stat.start == p.start && !strings.Contains("ZX", stat.state)
}

// Signal sends a signal to the process. It returns [os.ErrProcessDone] if the process has ended.
func (p Process) Signal(sig syscall.Signal) error {
	if !p.Alive() {
		return os.ErrProcessDone
	}
	return syscall.Kill(p.PID, sig)
}

// Crash kills the process with SIGKILL in such a way that the postmaster treats it as a crash. If
// the process exits by itself first, the postmaster sees no crash, and Crash returns
// [os.ErrProcessDone].
func (p Process) Crash(ctx context.Context) error {
	// Stop the process first. A stopped process cannot exit by itself, so the SIGKILL that follows
	// is certainly what ends it.
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return os.ErrProcessDone
	}
	for { // a process that is already exiting does not stop any more
		stat, err := readStat(fmt.Sprintf("/proc/%d/stat", p.PID))
		switch {
		case err != nil || stat.start != p.start || strings.Contains("ZX", stat.state):
			return os.ErrProcessDone
		case stat.state == "T":
			return syscall.Kill(p.PID, syscall.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), p.Signal(syscall.SIGCONT))
		case <-time.After(time.Millisecond):
		}
	}
}

type procStat struct {
	pid, parent  int
	state, start string
}

// readStat reads the fields that are needed here from a file /proc/PID/stat.
func readStat(path string) (procStat, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return procStat{}, err
	}
	// The second field is the name in parentheses, and the name can contain spaces and parentheses.
	head, tail, _ := strings.Cut(string(text), " (")
	fields := strings.Fields(tail[strings.LastIndexByte(tail, ')')+1:])
	const state, parent, start = 0, 1, 19
	if len(fields) <= start {
		return procStat{}, fmt.Errorf("%s is not understood", path)
	}
	s := procStat{state: fields[state], start: fields[start]}
	if s.pid, err = strconv.Atoi(head); err != nil {
		return procStat{}, err
	}
	s.parent, err = strconv.Atoi(fields[parent])
	return s, err
}
