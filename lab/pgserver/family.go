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
	Title string // what ps shows: "postgres: checkpointer "
	start string // tells it from a later process with the same id
}

// Processes lists the postmaster's children on Linux, and nothing elsewhere.
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

// Alive tells whether the process still runs. One that has ended and that nobody has waited for yet does not.
func (p Process) Alive() bool {
	stat, err := readStat(fmt.Sprintf("/proc/%d/stat", p.PID))
	return err == nil && stat.start == p.start && !strings.Contains("ZX", stat.state)
}

// Signal sends a signal to the process unless it has ended.
func (p Process) Signal(sig syscall.Signal) error {
	if !p.Alive() {
		return os.ErrProcessDone
	}
	return syscall.Kill(p.PID, sig)
}

// Crash ends the process by SIGKILL so that the postmaster sees it die by that, and takes it for a crash. A process that
// has ended by itself, as a session's backend may at any moment, has not crashed: that is [os.ErrProcessDone].
func (p Process) Crash(ctx context.Context) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return os.ErrProcessDone
	}
	for { // one that is on its way out does not stop any more
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

func readStat(path string) (procStat, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return procStat{}, err
	}
	// The second field is the name in brackets and can contain anything.
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
