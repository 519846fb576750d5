// Package process runs the parts of the example as separate processes, so that they can be killed.
package process

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Process is a running server. Its first line of output must be "listening on " followed by its
// URL.
type Process struct {
	URL   string // set by WaitUntilReady
	cmd   *exec.Cmd
	ready chan string   // receives the URL
	ended chan struct{} // closed when the process has ended
}

// Start starts command. env is added to the environment. The caller must call Stop or Kill.
func Start(command, env []string, stderr io.Writer) (*Process, error) {
	p := &Process{
		cmd:   exec.Command(command[0], command[1:]...),
		ready: make(chan string, 1),
		ended: make(chan struct{}),
	}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.follow(stdout)
	return p, nil
}

// follow reads the output of the process until it ends. It sends the URL to p.ready.
func (p *Process) follow(stdout io.Reader) {
	defer close(p.ended)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if url, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			p.ready <- url
			break
		}
	}
	_, _ = io.Copy(io.Discard, stdout)
	_ = p.cmd.Wait() // the error is not needed: the caller that ended the process knows why
}

// WaitUntilReady waits until the process listens. It fails if the process or ctx ends first.
func (p *Process) WaitUntilReady(ctx context.Context) error {
	select {
	case p.URL = <-p.ready:
		return nil
	case <-p.ended:
		return fmt.Errorf("%s did not start", p.cmd)
	case <-ctx.Done():
		return fmt.Errorf("%s did not become ready: %w", p.cmd, context.Cause(ctx))
	}
}

// Address returns the host and port of the process. Call it only after WaitUntilReady.
func (p *Process) Address() string { return address(p.URL) }

func address(url string) string {
	_, address, _ := strings.Cut(url, "://")
	return address
}

// Running reports whether the process is still running.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Kill kills the process with SIGKILL and returns when it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that the process has already ended
	<-p.ended
}

const stopLimit = 5 * time.Second

// Stop sends SIGTERM. If the process does not end within stopLimit, Stop kills it.
func (p *Process) Stop() {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err == nil {
		select {
		case <-p.ended:
		case <-time.After(stopLimit):
		}
	}
	p.Kill()
}
