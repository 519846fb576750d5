package demo

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// instance is one process of the service.
type instance struct {
	url    string // known when it is ready
	cmd    *exec.Cmd
	stderr bytes.Buffer  // to be read once the process has ended
	ready  chan string   // gets the URL
	ended  chan struct{} // closed when the process has
}

// start starts the process. The caller has to stop it.
func start(config Config) (*instance, error) {
	i := &instance{
		cmd:   exec.Command(config.Service[0], config.Service[1:]...),
		ready: make(chan string, 1),
		ended: make(chan struct{}),
	}
	i.cmd.Env = append(os.Environ(), "DATABASE_URL="+config.DatabaseURL)
	i.cmd.Stderr = &i.stderr
	stdout, err := i.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := i.cmd.Start(); err != nil {
		return nil, err
	}
	go i.follow(stdout)
	return i, nil
}

// follow listens to the process for as long as it lives.
func (i *instance) follow(stdout io.Reader) {
	defer close(i.ended)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if url, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			i.ready <- url
			break
		}
	}
	_, _ = io.Copy(io.Discard, stdout)
	_ = i.cmd.Wait() // how it ended is known to whoever ended it
}

func (i *instance) waitUntilReady(ctx context.Context) error {
	select {
	case i.url = <-i.ready:
		return nil
	case <-i.ended:
		return fmt.Errorf("the service did not start: %s", bytes.TrimSpace(i.stderr.Bytes()))
	case <-ctx.Done():
		return fmt.Errorf("the service did not become ready: %w", context.Cause(ctx))
	}
}

// address is where it listens, once it is ready.
func (i *instance) address() string { return strings.TrimPrefix(i.url, "http://") }

func (i *instance) running() bool {
	select {
	case <-i.ended:
		return false
	default:
		return true
	}
}

// kill is kill -9. It returns when the process is gone.
func (i *instance) kill() {
	_ = i.cmd.Process.Kill() // an error means that it has ended already
	<-i.ended
}

const stopLimit = 5 * time.Second

// stop asks the process to end, and kills it if it does not.
func (i *instance) stop() {
	if err := i.cmd.Process.Signal(syscall.SIGTERM); err == nil {
		select {
		case <-i.ended:
		case <-time.After(stopLimit):
		}
	}
	i.kill()
}
