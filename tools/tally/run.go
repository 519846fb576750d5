package main

import (
	"bytes"
	"context"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// grace is how long interrupted tests may take to end before tally kills them. It must be shorter
// than five seconds, because testenv, which can be the parent of tally, kills tally five seconds
// after a signal.
const grace = 3 * time.Second

// runAll runs the commands of all modules. The parameter together is the maximum number of commands
// that run at the same time. Once ctx is canceled, runAll starts no further command.
func runAll(ctx context.Context, r *results, together int) {
	slots := make(chan struct{}, together)
	var running sync.WaitGroup
	for _, m := range r.modules {
		// Wait until another command may run. An interrupt may arrive in the meantime.
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			run(ctx, r, m)
			<-slots
		})
	}
	running.Wait()
}

// run runs the command of one module in a process group of its own. It returns when all processes
// of the group have ended.
//
// go test does not wait for all processes that its tests have started. With the process group, run
// can kill these processes. After Ctrl-C, a terminal sends SIGINT only to tally, because the group
// is a background process group.
func run(ctx context.Context, r *results, m *module) {
	cmd := exec.CommandContext(ctx, m.command[0], m.command[1:]...)
	cmd.Dir = m.dir
	stdout := &lineWriter{take: func(line []byte) { r.take(m, line) }}
	stderr := &lineWriter{take: func(line []byte) { r.takeOther(m, line) }}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// When ctx is canceled, the whole group gets SIGINT. After WaitDelay, Wait kills go test and no
	// longer waits for output of processes that the tests have left running.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = grace

	began := time.Now()
	err := cmd.Start()
	if err == nil {
		err = cmd.Wait()
		stdout.flush()
		stderr.flush()
		endGroup(cmd.Process.Pid, r.killAt())
		m.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	r.end(m, time.Since(began), err)
}

// endGroup waits until all processes of a group have ended. It kills the processes that are still
// running at killAt.
func endGroup(group int, killAt time.Time) {
	waitForGroup(group, killAt)
	if syscall.Kill(-group, syscall.SIGKILL) == nil {
		waitForGroup(group, time.Now().Add(time.Second/2))
	}
}

func waitForGroup(group int, deadline time.Time) {
	for time.Now().Before(deadline) && syscall.Kill(-group, 0) == nil {
		time.Sleep(10 * time.Millisecond)
	}
}

// lineWriter is an io.Writer that calls take for each line that is written to it.
type lineWriter struct {
	take func(line []byte)
	rest []byte
}

func (w *lineWriter) Write(text []byte) (int, error) {
	w.rest = append(w.rest, text...)
	for {
		end := bytes.IndexByte(w.rest, '\n')
		if end < 0 {
			return len(text), nil
		}
		w.take(w.rest[:end+1])
		w.rest = w.rest[end+1:]
	}
}

// flush calls take for the last line, if it does not end with a newline.
func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.take(append(w.rest, '\n'))
		w.rest = nil
	}
}
