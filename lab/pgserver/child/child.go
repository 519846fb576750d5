// Package child starts processes that do not outlive the process that started them, however that one ends.
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

// Start starts the command. If this process ends before it, the kernel sends it sig, on Linux; elsewhere nothing does.
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

// run keeps one thread until the command has ended: what the kernel watches is the thread that started it.
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

// PID is the command's process id. It may be another process's once Done is closed.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the command has ended and its exit status is known.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal to the command, and fails if it has ended.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Kill ends the command at once and returns when it is gone.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.done
}
