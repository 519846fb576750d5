package main

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idem-go/idem/lab/pgserver/child"
)

// command is the process that testenv runs for its caller.
//
// If testenv is in the foreground of a terminal, the command shares the process group of testenv,
// and Ctrl-C reaches both. Otherwise the command leads a process group of its own, and testenv
// forwards signals to the whole group, because "go run" and "go test" do not forward signals to
// their children.
type command struct {
	cmd     *exec.Cmd
	process *child.Process
	grouped bool
}

// runCommand runs the command until it ends and returns its exit code as a shell does: 127 if the
// program does not exist, 126 if it cannot be started, and 128 plus the signal if a signal ended
// it.
func runCommand(args, env []string, signals <-chan os.Signal) int {
	c := &command{cmd: exec.Command(args[0], args[1:]...), grouped: !inForeground()}
	c.cmd.Env = env
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: c.grouped}
	var err error
	if c.process, err = child.Start(c.cmd, syscall.SIGTERM); err != nil {
		say("%v", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return 127
		}
		return 126
	}

	// testenv passes a signal on to the command and does not end. When the command has ended,
	// testenv removes the databases and the server, and ends itself.
	signalled := false
	for {
		select {
		case sig := <-signals:
			signalled = true
			c.forward(sig.(syscall.Signal))
		case <-c.process.Done():
			c.sweep(signalled)
			return exitCode(c.cmd.ProcessState)
		}
	}
}

// forward sends a signal to the command, unless the terminal has already sent it.
func (c *command) forward(sig syscall.Signal) {
	if c.grouped {
		syscall.Kill(-c.cmd.Process.Pid, sig)
		return
	}
	if !slices.Contains([]syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP}, sig) {
		c.cmd.Process.Signal(sig)
	}
}

// sweep kills the processes that the command has left running, because their database is dropped
// next. If testenv has forwarded a signal, they first get five seconds to end.
func (c *command) sweep(signalled bool) {
	if !c.grouped {
		return
	}
	group := -c.cmd.Process.Pid
	if signalled {
		const grace = 5 * time.Second
		for deadline := time.Now().Add(grace); time.Now().Before(deadline) && syscall.Kill(group, 0) == nil; {
			time.Sleep(10 * time.Millisecond)
		}
	}
	syscall.Kill(group, syscall.SIGKILL)
}

// inForeground reports whether the terminal sends its signals to the process group of testenv.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
