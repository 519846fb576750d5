package demo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// stage is what the acts are played on: two instances of the service and their database.
type stage struct {
	config        Config
	pool          *pgxpool.Pool // to look, and to be in the way
	first, second *instance
	started       []*instance // every one there ever was
	counter
}

func (s *stage) open(ctx context.Context) error {
	if err := s.revive(ctx); err != nil { // they migrate the database
		return err
	}
	pool, err := pgxpool.New(ctx, s.config.DatabaseURL)
	s.pool = pool
	return err
}

// revive starts the instances that are not running.
func (s *stage) revive(ctx context.Context) error {
	for _, place := range []**instance{&s.first, &s.second} {
		if *place != nil && (*place).running() {
			continue
		}
		i, err := start(s.config)
		if err != nil {
			return err
		}
		s.started = append(s.started, i)
		*place = i
		if err := i.waitUntilReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close ends what is still running.
func (s *stage) close() {
	s.stopAll()
	if s.pool != nil {
		s.pool.Close()
	}
}

func (s *stage) stopAll() {
	for _, i := range s.started {
		i.stop()
	}
}

// printLogs shows what the instances had to say, once something has gone wrong.
func (s *stage) printLogs() {
	s.stopAll()
	for _, i := range s.started {
		if i.stderr.Len() > 0 {
			fmt.Fprintf(s.config.Out, "\nlog of the instance at %s:\n%s", i.url, &i.stderr)
		}
	}
}

// send makes one call to an instance.
func (s *stage) send(ctx context.Context, to *instance, key string, o order) (answer, error) {
	return s.customer(nil).order(ctx, to.url, key, o)
}
