// Package child starts processes that end when the process that started them ends, even by SIGKILL.
package child

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a started command.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// Start starts the command. On Linux, the kernel sends sig to the command if this process ends
// first. On other systems the command then keeps running.
func Start(cmd *exec.Cmd, sig syscall.Signal) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	dieWithUs(cmd.SysProcAttr, sig)
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run starts the command and waits for it on one locked thread. The kernel sends the signal when
// the thread that started the command ends, so this thread must live as long as the command.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.cmd.Wait()
		close(p.done)
	}
}

// PID returns the command's process id. Another process may have the same id once Done is closed.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the command has ended and its exit status is known.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal to the command. It fails if the command has ended.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Kill kills the command and returns when it has ended.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.done
}
