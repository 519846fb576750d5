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

// counterpart is a system that workers talk to, besides the database: it keeps books of its own, does them harm, and has them
// killed.
type counterpart interface {
	Address() string
	KillBy(kill func(slot int, when string)) // nil if none is to be killed
	Calm()                                   // ends the harm
	Close() error
}

const (
	calmFor     = 2500 * time.Millisecond // for how long nothing is broken before the end
	finishLimit = time.Minute             // for the operations in progress to end, besides finishTimes the duration of the leg
	finishTimes = 4                       // because one process does what several have left
	finishMax   = 20 * time.Minute        // for all of it: whatever is left then is reported as it is
	finishExit  = time.Minute             // for the worker to exit after that
	finishSlot  = 1000                    // of the worker that finishes
)

// finishWithin is how long the worker that finishes may take.
func (l *leg) finishWithin() time.Duration { return min(finishLimit+finishTimes*l.duration, finishMax) }

// openBeside opens the counterpart of the leg's work, if that has one.
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

// addresses are those of the counterparts, empty where there is none.
func (l *leg) addresses() (bank, broker string) {
	switch l.about.Work {
	case fault.OperationWork:
		bank = l.beside.Address()
	case fault.MessageWork:
		broker = l.beside.Address()
	}
	return bank, broker
}

// closeBeside closes it for good. An error of its books is one of the leg.
func (l *leg) closeBeside() {
	if l.beside == nil {
		return
	}
	if err := l.beside.Close(); err != nil {
		l.about.Failures = append(l.about.Failures, fmt.Sprintf("the books of the %s: %v", l.about.Work, err))
	}
	l.beside = nil
}

// kills is how the counterpart kills whoever calls it.
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

// calm cuts all connections once more, so that every process has lost its presence, and lets the workers work with nothing
// broken.
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
	forLost  = 20 * time.Second        // is a leg that is long enough to find out what happens to lost answers
	losing   = 1500 * time.Millisecond // for how long they are lost
	lostCalm = 12 * time.Second        // until it has shown what happens to them
)

// loseTakings loses answers that operations are taken up, while nothing else is broken and nobody is killed any more.
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

// finish starts a worker that brings what the others have left to its end, and kills it if it does not exit in time.
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
