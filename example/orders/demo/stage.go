package demo

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/example/orders/process"
)

// stage is what the acts are played on: two instances of the service, their database and their bank.
type stage struct {
	config        Config
	dir           string        // has the bank's ledger
	pool          *pgxpool.Pool // to look, and to be in the way
	bank          *process.Process
	first, second *process.Process
	started       []*started // every one there ever was
	counter
}

// started is a process, and what it had to say.
type started struct {
	*process.Process
	stderr bytes.Buffer // to be read once the process has ended
}

func (s *stage) open(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "orders-demo-"); err != nil {
		return err
	}
	if err := s.openBank(ctx); err != nil {
		return s.explain(err)
	}
	if err := s.revive(ctx); err != nil { // they migrate the database
		return s.explain(err)
	}
	s.pool, err = pgxpool.New(ctx, s.config.DatabaseURL)
	return err
}

// revive starts the instances that are not running.
func (s *stage) revive(ctx context.Context) error {
	for _, place := range []**process.Process{&s.first, &s.second} {
		if *place != nil && (*place).Running() {
			continue
		}
		p, err := s.start(append(append([]string{}, s.config.Service...), "-listen", "127.0.0.1:0"))
		if err != nil {
			return err
		}
		*place = p
		if err := p.WaitUntilReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) start(command []string) (*process.Process, error) {
	settings := []string{"DATABASE_URL=" + s.config.DatabaseURL}
	if s.bank != nil {
		settings = append(settings, "BANK_URL="+s.bank.URL)
	}
	next := new(started)
	p, err := process.Start(command, settings, &next.stderr)
	if err != nil {
		return nil, err
	}
	next.Process = p
	s.started = append(s.started, next)
	return p, nil
}

// close ends what is still running.
func (s *stage) close() {
	s.stopAll()
	if s.pool != nil {
		s.pool.Close()
	}
	os.RemoveAll(s.dir)
}

func (s *stage) stopAll() {
	for _, p := range s.started {
		p.Stop()
	}
}

// explain adds to err what the process said that was started last.
func (s *stage) explain(err error) error {
	if len(s.started) == 0 {
		return err
	}
	last := s.started[len(s.started)-1]
	last.Stop()
	return fmt.Errorf("%w: %s", err, bytes.TrimSpace(last.stderr.Bytes()))
}

// printLogs shows what the processes had to say, once something has gone wrong.
func (s *stage) printLogs() {
	s.stopAll()
	for _, p := range s.started {
		if p.stderr.Len() > 0 {
			fmt.Fprintf(s.config.Out, "\nlog of the process at %s:\n%s", p.URL, &p.stderr)
		}
	}
}

// send makes one call to an instance.
func (s *stage) send(ctx context.Context, to *process.Process, key string, o order) (answer, error) {
	return s.customer(nil).order(ctx, to.URL, key, o)
}
