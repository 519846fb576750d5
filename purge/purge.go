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

// Once makes one sweep over every table, or resumes a sweep that another run has not finished. If
// another run is sweeping a table, Once skips the table, and Sweep.Ended is Elsewhere. If the
// server becomes unavailable during a sweep, for example in a failover, Once waits up to a minute
// for it. The report is valid even if Once returns an error, for example because ctx was canceled.
// If the COMMIT of a portion was not acknowledged, the report does not count the portion.
func Once(ctx context.Context, pool *pgxpool.Pool, options Options) (Report, error) {
	o, err := options.complete(pool)
	if err != nil {
		return Report{}, err
	}
	return once(ctx, pool, o, 0)
}

// Run starts a sweep every Options.Every until ctx ends, and then returns nil. Every process of a
// service may call Run. One process sweeps, and if it is killed, another process resumes the sweep.
// A failure is reported to Options.Done and retried after 30 to 90 seconds, or sooner if Every is
// less than a minute. Run returns an error only for invalid options.
func Run(ctx context.Context, pool *pgxpool.Pool, options Options) error {
	o, err := options.complete(pool)
	if err = errors.Join(err, options.checkForRun()); err != nil {
		return err
	}
	for {
		rep, err := once(ctx, pool, o, o.Every)
		if ctx.Err() != nil {
			err = nil // the end of ctx is not a failure
		}
		if err != nil || rep.hasSwept() {
			o.Done(rep, err)
		}
		interval := min(o.Every, time.Minute)
		if txn.Sleep(ctx, interval/2+mathrand.N(interval)) != nil {
			return nil
		}
	}
}

func once(ctx context.Context, pool *pgxpool.Pool, o *Options, every time.Duration) (Report, error) {
	begin, sweeper := time.Now(), newID()
	rep := Report{DryRun: o.DryRun}
	var errs []error
	for _, t := range tables { // a failure, such as a table that is not migrated yet, does not stop the other tables
		s := newSweep(pool, o, t, sweeper, every)
		s.first = begin
		errs = append(errs, s.run(ctx))
		rep.Tables = append(rep.Tables, s.did)
		rep.add(s.did.Counts)
	}
	rep.Duration = time.Since(begin)
	return rep, errors.Join(errs...)
}

// hasSwept reports whether any table was swept.
func (r Report) hasSwept() bool {
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
