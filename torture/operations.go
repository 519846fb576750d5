package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/idem-go/idem/internal/pgproxy"
	"github.com/idem-go/idem/torture/audit"
	"github.com/idem-go/idem/torture/bank"
	"github.com/idem-go/idem/torture/crew"
	"github.com/idem-go/idem/torture/fault"
	"github.com/idem-go/idem/torture/history"
	"github.com/idem-go/idem/torture/workload"
)

// What a leg has besides whose workers work on operations.

const (
	calmFor     = 2500 * time.Millisecond // for how long nothing is broken before the end
	finishLimit = time.Minute             // for all operations to end
	finishSlot  = 1000                    // of the worker that finishes
)

func (l *leg) openBank() (err error) {
	l.bank, err = bank.Open(filepath.Join(l.dir, audit.BooksFile), l.seed)
	return err
}

// closeBank closes it for good. An error of its books is one of the leg.
func (l *leg) closeBank() {
	if l.bank == nil {
		return
	}
	if err := l.bank.Close(); err != nil {
		l.about.Failures = append(l.about.Failures, fmt.Sprintf("the bank: %v", err))
	}
	l.bank = nil
}

// bankKills is how the bank kills whoever calls it.
func bankKills(workers *crew.Crew, log func(fault.Event)) func(slot int, when string) {
	return func(slot int, when string) {
		err := workers.Signal(slot, syscall.SIGKILL)
		log(fault.Event{Kind: fault.BankKill, At: history.Now(), Worker: slot, Detail: when, Kills: err == nil})
	}
}

// calm cuts all connections once more, so that every process has lost its presence, and lets the workers work with nothing
// broken.
func (l *leg) calm(ctx context.Context, workers *crew.Crew) {
	l.bank.Calm()
	for i := range workers.Len() {
		workers.Proxy(i).Cut(pgproxy.Reset)
	}
	l.about.Calm = history.Now()
	select {
	case <-ctx.Done():
	case <-time.After(calmFor):
	}
}

// finish has all operations end that the workers have left.
func (l *leg) finish(ctx context.Context) error {
	l.bank.Calm()
	config, err := json.Marshal(workload.Config{
		Slot: finishSlot, Seed: l.seed, File: filepath.Join(l.dir, "worker-finish.jsonl"), DSN: l.direct,
		Bank: l.bank.Address(), Finish: finishLimit,
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "worker")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err = input.Write(append(config, '\n'))
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("finish: %w\n%s", err, stderr.Bytes())
	}
	return nil
}
