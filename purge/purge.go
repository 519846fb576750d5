package purge

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/txn"
)

// Once makes one sweep over all that idem keeps, or goes on with one that another run has left. If another run is at it, it
// leaves that to it: Sweep.Ended is Elsewhere. A server that goes away in the middle, in a failover or a restart, is waited for,
// for a minute at most. The report says what was done also beside an error, such as that of a context that has ended; a portion
// whose COMMIT was not acknowledged is counted by idem.sweeps alone.
func Once(ctx context.Context, pool *pgxpool.Pool, options Options) (Report, error) {
	o, err := options.complete(pool)
	if err != nil {
		return Report{}, err
	}
	return once(ctx, pool, o, 0)
}

// Run sweeps every Options.Every until ctx ends, and then returns nil. It may run in every process: one sweeps, and if that is
// killed, another one goes on. A failure is told to Options.Done, and tried again within a minute. An error is returned only
// for options that make no sense.
func Run(ctx context.Context, pool *pgxpool.Pool, options Options) error {
	o, err := options.complete(pool)
	if err = errors.Join(err, options.forRun()); err != nil {
		return err
	}
	for {
		rep, err := once(ctx, pool, o, o.Every)
		if ctx.Err() != nil {
			err = nil // that a program ends is no failure
		}
		if err != nil || rep.didSomething() {
			o.Done(rep, err)
		}
		look := min(o.Every, time.Minute)
		if txn.Sleep(ctx, look/2+mathrand.N(look)) != nil {
			return nil
		}
	}
}

func once(ctx context.Context, pool *pgxpool.Pool, o *Options, every time.Duration) (Report, error) {
	begin, sweeper := time.Now(), newID()
	rep := Report{DryRun: o.DryRun}
	var errs []error
	for _, t := range tables { // one that fails, such as a table yet to be migrated to, keeps none of the others from its turn
		s := newSweep(pool, o, t, sweeper, every)
		s.first = begin
		errs = append(errs, s.run(ctx))
		rep.Tables = append(rep.Tables, s.did)
		rep.add(s.did.Counts)
	}
	rep.Duration = time.Since(begin)
	return rep, errors.Join(errs...)
}

// didSomething reports whether any table was swept.
func (r Report) didSomething() bool {
	for _, s := range r.Tables {
		if s.Ended != Elsewhere || s.Pages > 0 {
			return true
		}
	}
	return false
}

func newID() string {
	var id [16]byte
	rand.Read(id[:])
	return pgtype.UUID{Bytes: id, Valid: true}.String()
}
