// Package process runs the parts of the example as processes of their own, so that they can be killed.
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

// Process is a server. Its first line of output has to be "listening on " and its URL.
type Process struct {
	URL   string // known when it is ready
	cmd   *exec.Cmd
	ready chan string   // gets the URL
	ended chan struct{} // closed when the process has
}

// Start starts the command with further settings in its environment. The caller has to stop it.
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

// follow listens to the process for as long as it lives.
func (p *Process) follow(stdout io.Reader) {
	defer close(p.ended)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if url, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			p.ready <- url
			break
		}
	}
	_, _ = io.Copy(io.Discard, stdout)
	_ = p.cmd.Wait() // how it ended is known to the one that ended it
}

// WaitUntilReady returns when the process listens, with an error if it does not.
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

// Address is where it listens, once it is ready.
func (p *Process) Address() string { return address(p.URL) }

func address(url string) string {
	_, address, _ := strings.Cut(url, "://")
	return address
}

// Running reports whether it has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Kill is kill -9. It returns when the process is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended already
	<-p.ended
}

const stopLimit = 5 * time.Second

// Stop asks the process to end, and kills it if it does not.
func (p *Process) Stop() {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err == nil {
		select {
		case <-p.ended:
		case <-time.After(stopLimit):
		}
	}
	p.Kill()
}
