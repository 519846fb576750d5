//go:build unix

package process

import (
	"errors"
	"syscall"
)

// Freeze suspends the process with SIGSTOP and returns when all of its threads have stopped.
// Sending the signal alone is not enough: until the last thread has stopped, it may still send a
// COMMIT. Wait4 reports that moment.
func (p *Process) Freeze() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case status.Stopped():
			return nil
		default:
			return errors.New("the process ended before it could be frozen")
		}
	}
}
