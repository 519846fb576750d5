package main

import (
	"context"
	"time"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/sidebyside"
)

const (
	crowdSize  = 50
	crowdPool  = 2
	crowdDelay = 300 * time.Millisecond
)

// crowd measures how long 50 operations at once take over a pool of 2 connections, with a bank that takes 300 ms: who holds a
// connection during a call needs 7.5 s.
func crowd(ctx context.Context, s *server, r *results) error {
	for _, c := range r.contestants {
		if c.Name != contestant.Idem().Name {
			continue
		}
		dsn, err := s.database(ctx, c)
		if err != nil {
			return err
		}
		other, err := bank.Open(crowdDelay, false)
		if err != nil {
			return err
		}
		defer other.Close()
		b, err := openBooth(ctx, c, contestant.Place{DSN: dsn}, other.URL, crowdPool)
		if err != nil {
			return err
		}
		defer b.Close()
		t, err := takeSample(ctx, b, crowdSize, 0, 1)
		if err != nil {
			return err
		}
		r.Crowd = t.elapsed
		sidebyside.Say("%d operations at once on a pool of %d, bank at %v: %v", crowdSize, crowdPool, crowdDelay, t.elapsed.Round(time.Millisecond))
	}
	return nil
}
