//go:build unix

package process

import (
	"errors"
	"syscall"
)

// Freeze returns when the process has stopped in the middle of what it does. The signal alone would not do: until the last
// thread has stopped, which Wait4 reports, one of them may still send a COMMIT.
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
