package purge

import (
	"cmp"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The defaults of the options.
const (
	DefaultEvery      = time.Hour
	DefaultGrace      = time.Hour
	DefaultOperations = 7 * 24 * time.Hour
	DefaultAudit      = 365 * 24 * time.Hour
	DefaultShare      = 0.25
	DefaultPages      = 512
	DefaultMaxLag     = 256 << 20
	DefaultMaxDead    = 10_000_000
	DefaultPatience   = 10 * time.Minute
)

// Options say how to purge. The zero value is fit for production.
type Options struct {
	// Every is the time from the beginning of one sweep to that of the next, whichever process makes them. It is for Run. A sweep
	// reads the whole table: more often is cheap for a small one only. DefaultEvery if zero.
	Every time.Duration

	// Grace is how long a record stays after it has expired, and the memory of a message after its retention is over: a call that asks for the outcome of its COMMIT still finds it, so it
	// should exceed the longest time that a call can take. DefaultGrace if zero.
	Grace time.Duration

	// Operations is how long an operation of several steps stays after it has ended, with its steps and signals, for a reader who wants
	// to know how it went. One that is parked stays. DefaultOperations if zero.
	Operations time.Duration

	// Audit is how long idem.audit tells what people did, from the moment of the act. DefaultAudit, a year, if zero.
	Audit time.Duration

	// Share is the part of its time that a sweep works; the rest it pauses. From there follows how much of one processor of
	// the server it takes at most. 1 is without pauses. DefaultShare if zero.
	Share float64

	// Pages is how many pages a portion walks at most. DefaultPages if zero.
	Pages int

	// MaxLag is by how many bytes of WAL the slowest standby may lag behind in its replay before the sweep waits for it. A standby
	// that is late on purpose (recovery_min_apply_delay) counts as well: where there is one, raise it. DefaultMaxLag if zero;
	// without limit if negative. It takes a role that may see them (pg_monitor): Report.Hidden says how many it may not.
	MaxLag int64

	// MaxDead is how many dead rows of a table may wait for vacuum before the sweep does so too. DefaultMaxDead if zero, which is
	// about what a vacuum removes by one walk through the index; without limit if negative.
	MaxDead int64

	// Patience is how long a sweep waits for one of these before it ends, to go on with the next. DefaultPatience if zero.
	Patience time.Duration

	// Max is how long Once takes at most; then the sweep is left where it is. Without limit if zero.
	Max time.Duration

	// DryRun counts what would be deleted, and changes nothing.
	DryRun bool

	// Progress is told after each portion and while the sweep waits, if it is not nil. It is called by the goroutine that sweeps.
	Progress func(Progress)

	// Done is told by Run what came of each sweep, and of each attempt that failed. If it is nil, failures are logged as
	// warnings by slog's default logger.
	Done func(Report, error)
}

// forRun returns the error of options that only Once can heed.
func (o Options) forRun() error {
	if o.DryRun || o.Max != 0 {
		return errors.New("purge: DryRun and Max are for Once")
	}
	return nil
}

// complete returns the options with defaults filled in.
func (o Options) complete(pool *pgxpool.Pool) (*Options, error) {
	switch {
	case pool == nil:
		return nil, errors.New("purge: pool is nil")
	case o.Every < 0, o.Grace < 0, o.Operations < 0, o.Audit < 0, o.Patience < 0, o.Max < 0, o.Pages < 0:
		return nil, errors.New("purge: Every, Grace, Operations, Audit, Patience, Max and Pages must not be negative")
	case !(o.Share >= 0 && o.Share <= 1): // nor NaN
		return nil, errors.New("purge: Share must be between 0 and 1")
	}
	o.Every = cmp.Or(o.Every, DefaultEvery)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.Operations = cmp.Or(o.Operations, DefaultOperations)
	o.Audit = cmp.Or(o.Audit, DefaultAudit)
	o.Share = cmp.Or(o.Share, DefaultShare)
	o.Pages = cmp.Or(o.Pages, DefaultPages)
	o.MaxLag = cmp.Or(o.MaxLag, DefaultMaxLag)
	o.MaxDead = cmp.Or(o.MaxDead, DefaultMaxDead)
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Done == nil {
		o.Done = logFailure
	}
	return &o, nil
}
