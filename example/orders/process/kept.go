package process

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

// Kept is a server process that is restarted at the same address whenever it ends.
type Kept struct {
	URL     string
	command []string
	env     []string
	stderr  io.Writer

	mu      sync.Mutex
	process *Process
	stop    context.CancelFunc
	stopped chan struct{}
}

// Keep starts a command and returns when it is ready. The command must accept its address with the
// flag -listen. The caller must call Stop.
func Keep(ctx context.Context, command, env []string, stderr io.Writer) (*Kept, error) {
	ctx, stop := context.WithCancel(ctx)
	k := &Kept{command: command, env: env, stderr: stderr, stop: stop, stopped: make(chan struct{})}
	if err := k.start(ctx, "127.0.0.1:0"); err != nil {
		stop()
		return nil, err
	}
	k.URL = k.process.URL
	go k.keep(ctx)
	return k, nil
}

// start starts the process at address and waits until it is ready.
func (k *Kept) start(ctx context.Context, address string) error {
	command := append(append([]string{}, k.command...), "-listen", address)
	p, err := Start(command, k.env, k.stderr)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.process = p
	k.mu.Unlock()
	if err := p.WaitUntilReady(ctx); err != nil {
		p.Stop()
		return err
	}
	return nil
}

// restartPause is the delay before a restart.
const restartPause = 500 * time.Millisecond

// keep restarts the process whenever it ends, until ctx ends.
func (k *Kept) keep(ctx context.Context) {
	defer close(k.stopped)
	for {
		select {
		case <-k.process.ended:
		case <-ctx.Done():
			k.process.Stop()
			return
		}
		select {
		case <-time.After(restartPause):
		case <-ctx.Done():
			return
		}
		if err := k.start(ctx, address(k.URL)); err != nil {
			slog.WarnContext(ctx, "a process could not be restarted", "error", err)
		}
	}
}

// Kill kills the current process with SIGKILL. The process is then restarted.
func (k *Kept) Kill() {
	k.mu.Lock()
	p := k.process
	k.mu.Unlock()
	p.Kill()
}

// Stop ends the process without a restart.
func (k *Kept) Stop() {
	k.stop()
	<-k.stopped
}
