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

// stage is the environment of the acts: two instances of the service, the bank, the broker,
// fulfilment, and their databases.
type stage struct {
	config        Config
	dir           string        // directory of the files of the broker
	host          string        // address on which all processes listen
	pool          *pgxpool.Pool // to read the shop's database and to lock rows
	fulfilmentDB  *pgxpool.Pool // to read the database of fulfilment
	bank, broker  *process.Process
	first, second *process.Process
	fulfilment    *process.Process
	settings      []string   // environment of every process
	started       []*started // all processes, including those that have ended
	counter
}

// started is a process and its log.
type started struct {
	*process.Process
	stderr bytes.Buffer // read it only after the process has ended
}

// open connects to the databases and starts all parts.
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
	return s.revive(ctx) // the parts migrate the databases
}

// revive starts the parts that are not running. A part that ran before gets its previous address.
func (s *stage) revive(ctx context.Context) error {
	for _, part := range []struct {
		place **process.Process
		name  string
		url   string // environment variable that gives the URL of this part to the later parts
		args  []string
	}{
		{&s.bank, "bank", "BANK_URL", nil},
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

// start starts a process and waits until it is ready.
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

// close stops all processes, closes the pools and deletes the files.
func (s *stage) close() {
	s.stopAll()
	for _, pool := range []*pgxpool.Pool{s.pool, s.fulfilmentDB} {
		if pool != nil {
			pool.Close()
		}
	}
	os.RemoveAll(s.dir)
}

// stopAll stops the processes in the reverse order of their start, so that a consumer stops before
// its producer.
func (s *stage) stopAll() {
	for i := len(s.started) - 1; i >= 0; i-- {
		s.started[i].Stop()
	}
}

// printLogs stops all processes and prints their logs.
func (s *stage) printLogs() {
	s.stopAll()
	for _, p := range s.started {
		if p.stderr.Len() > 0 {
			fmt.Fprintf(s.config.Out, "\nlog of the process at %s:\n%s", p.URL, &p.stderr)
		}
	}
}

// send places an order at one instance, with retries.
func (s *stage) send(ctx context.Context, to *process.Process, key string, o order) (answer, error) {
	return s.customer(direct(nil)).order(ctx, to.URL, key, o)
}
