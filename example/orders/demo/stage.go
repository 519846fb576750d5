package demo

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/example/orders/process"
)

// stage is what the acts are played on: two instances of the service, their bank, their broker and fulfilment, and the databases.
type stage struct {
	config        Config
	dir           string        // has what the bank and the broker keep
	host          string        // at which all listen
	pool          *pgxpool.Pool // to look, and to be in the way
	fulfilmentDB  *pgxpool.Pool // likewise
	bank, broker  *process.Process
	first, second *process.Process
	fulfilment    *process.Process
	settings      []string   // of every process
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
	s.host = process.Host()
	s.settings = []string{
		"DATABASE_URL=" + s.config.DatabaseURL, "FULFILMENT_DATABASE_URL=" + s.config.FulfilmentDatabaseURL,
		"WEBHOOK_SECRET=" + s.config.WebhookSecret,
	}
	if s.pool, err = pgxpool.New(ctx, s.config.DatabaseURL); err != nil {
		return err
	}
	if s.fulfilmentDB, err = pgxpool.New(ctx, s.config.FulfilmentDatabaseURL); err != nil {
		return err
	}
	return s.revive(ctx) // they migrate the databases
}

// revive starts the parts that are not running, at the addresses where they were.
func (s *stage) revive(ctx context.Context) error {
	for _, part := range []struct {
		place **process.Process
		name  string
		url   string // the variable by which others find it
		args  []string
	}{
		{&s.bank, "bank", "BANK_URL", []string{"-ledger", filepath.Join(s.dir, "ledger")}},
		{&s.broker, "broker", "BROKER_URL", []string{"-store", filepath.Join(s.dir, "messages")}},
		{&s.first, "service", "", nil},
		{&s.second, "service", "SHOP_URL", nil},
		{&s.fulfilment, "fulfilment", "", nil},
	} {
		listen := net.JoinHostPort(s.host, "0")
		if p := *part.place; p != nil {
			if p.Running() {
				continue
			}
			listen = p.Address()
		}
		p, err := s.start(ctx, append(append(s.config.Command(part.name), part.args...), "-listen", listen))
		if err != nil {
			return err
		}
		*part.place = p
		if part.url != "" {
			s.settings = append(s.settings, part.url+"="+p.URL)
		}
	}
	return nil
}

// start starts a process, and returns when it is ready.
func (s *stage) start(ctx context.Context, command []string) (*process.Process, error) {
	next := new(started)
	p, err := process.Start(command, s.settings, &next.stderr)
	if err != nil {
		return nil, err
	}
	next.Process = p
	s.started = append(s.started, next)
	if err := p.WaitUntilReady(ctx); err != nil {
		p.Stop()
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(next.stderr.Bytes()))
	}
	return p, nil
}

// close ends what is still running.
func (s *stage) close() {
	s.stopAll()
	for _, pool := range []*pgxpool.Pool{s.pool, s.fulfilmentDB} {
		if pool != nil {
			pool.Close()
		}
	}
	os.RemoveAll(s.dir)
}

// stopAll stops those first that were started last: who is told before who tells.
func (s *stage) stopAll() {
	for i := len(s.started) - 1; i >= 0; i-- {
		s.started[i].Stop()
	}
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
