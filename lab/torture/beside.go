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

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/torture/audit"
	"github.com/idem-go/idem/lab/torture/bank"
	"github.com/idem-go/idem/lab/torture/broker"
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/inquiry"
	"github.com/idem-go/idem/lab/torture/workerset"
	"github.com/idem-go/idem/lab/torture/workload"
)

// counterpart is the system that workers call besides the database. It keeps its own books, injects
// failures, and has workers killed.
type counterpart interface {
	Address() string
	KillBy(kill func(slot int, when string)) // nil: kill no worker
	Calm()                                   // stops the failures
	Close() error
}

const (
	calmFor     = 2500 * time.Millisecond // how long nothing is broken before the end
	finishLimit = time.Minute
	finishTimes = 4
	finishMax   = 20 * time.Minute
	finishExit  = time.Minute // for the last worker to exit
	finishSlot  = 1000        // the slot of the last worker
)

// finishWithin returns the time limit of the worker that finishes the work of all others. One
// process has to do what several have left, so the limit grows with four times the duration of the
// leg. What is left after finishMax is reported as unfinished.
func (l *leg) finishWithin() time.Duration { return min(finishLimit+finishTimes*l.duration, finishMax) }

// openBeside opens the counterpart of the leg, if its work has one.
func (l *leg) openBeside() (err error) {
	switch l.about.Work {
	case fault.OperationWork:
		l.beside, err = bank.Open(filepath.Join(l.dir, audit.BooksFile), l.seed)
	case fault.MessageWork:
		l.beside, err = broker.Open(filepath.Join(l.dir, inquiry.BooksFile), l.seed)
	}
	if err == nil && l.about.Quiet {
		l.beside.Calm()
	}
	return err
}

// addresses returns the addresses of bank and broker, or "".
func (l *leg) addresses() (bank, broker string) {
	switch l.about.Work {
	case fault.OperationWork:
		bank = l.beside.Address()
	case fault.MessageWork:
		broker = l.beside.Address()
	}
	return bank, broker
}

// closeBeside closes the counterpart. An error of its books is a failure of the leg.
func (l *leg) closeBeside() {
	if l.beside == nil {
		return
	}
	if err := l.beside.Close(); err != nil {
		l.about.Failures = append(l.about.Failures, fmt.Sprintf("the books of the %s: %v", l.about.Work, err))
	}
	l.beside = nil
}

// kills returns the function by which the counterpart kills the worker in a slot.
func (l *leg) kills(workers *workerset.Set, log func(fault.Event)) func(slot int, when string) {
	kind := fault.BankKill
	if l.about.Work == fault.MessageWork {
		kind = fault.BrokerKill
	}
	return func(slot int, when string) {
		err := workers.Signal(slot, syscall.SIGKILL)
		log(fault.Event{Kind: kind, At: history.Now(), Worker: slot, Detail: when, Kills: err == nil})
	}
}

// calm cuts all connections once more, so that every process loses its presence, and then lets the
// workers run without faults.
func (l *leg) calm(ctx context.Context, workers *workerset.Set) {
	l.beside.Calm()
	for i := range workers.Len() {
		workers.Proxy(i).Cut(pgproxy.Reset)
	}
	l.about.Calm = history.Now()
	if l.about.Work == fault.OperationWork && l.duration >= forLost {
		l.loseTakings(ctx, workers)
	}
	select {
	case <-ctx.Done():
	case <-time.After(calmFor):
	}
	l.about.Stop = history.Now()
}

const (
	forLost  = 20 * time.Second        // the shortest leg that tests lost answers
	losing   = 1500 * time.Millisecond // how long answers are lost
	lostCalm = 12 * time.Second        // how long the workers then have to recover
)

// loseTakings makes answers to claims of operations get lost. Nothing else is broken at that time.
func (l *leg) loseTakings(ctx context.Context, workers *workerset.Set) {
	bounded, cancel := context.WithTimeout(ctx, losing)
	defer cancel()
	mix := fault.Mix{Only: []fault.Name{fault.LoseTaking}, Pause: 50 * time.Millisecond}
	if err := fault.Run(bounded, l.seed, fault.Target{Workers: workers}, mix, func(fault.Event) {}); err != nil {
		l.about.Failures = append(l.about.Failures, err.Error())
	}
	select {
	case <-ctx.Done():
	case <-time.After(lostCalm):
	}
}

// finish runs a worker that finishes what the others have left. It kills the worker if the worker
// does not exit in time.
func (l *leg) finish(ctx context.Context) error {
	l.beside.Calm()
	bank, broker := l.addresses()
	config, err := json.Marshal(workload.Config{
		Slot: finishSlot, Seed: l.seed, File: filepath.Join(l.dir, "worker-finish.jsonl"), DSN: l.direct,
		Bank: bank, Broker: broker, Direct: l.about.Direct, Finish: l.finishWithin(),
	})
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, l.finishWithin()+finishExit)
	defer cancel()
	cmd := exec.CommandContext(bounded, os.Args[0], "worker")
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
