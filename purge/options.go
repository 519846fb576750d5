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

// Options configure a purge. The zero value is fit for production.
type Options struct {
	// Every is the time between the starts of two sweeps of a table, even if different processes
	// run them. Only Run uses it. A sweep reads the whole table, so a short time is cheap only for
	// a small table. DefaultEvery if zero.
	Every time.Duration

	// Grace is how long a record or an inbox entry is kept after it has expired. A call that must
	// find out the outcome of its COMMIT reads the record within this time. So Grace should exceed
	// the longest duration of a call. DefaultGrace if zero.
	Grace time.Duration

	// Operations is how long an operation is kept after it has ended, with its steps and signals,
	// so that people can look at it. A parked operation has not ended and is kept.
	// DefaultOperations if zero.
	Operations time.Duration

	// Audit is how long an entry of idem.audit is kept. DefaultAudit, a year, if zero.
	Audit time.Duration

	// Share is the fraction of the time in which a sweep works, from 0 to 1. The rest of the time
	// the sweep pauses. So Share limits how much of one processor of the server a sweep uses. With
	// 1 there are no pauses. DefaultShare if zero.
	Share float64

	// Pages is the maximum number of pages in a portion. DefaultPages if zero.
	Pages int

	// MaxLag is how many bytes of WAL the slowest standby may be behind in its replay before the
	// sweep waits for it. A standby that is delayed on purpose (recovery_min_apply_delay) counts as
	// well, so raise MaxLag if you have such a standby. DefaultMaxLag if zero; no limit if
	// negative. The role needs pg_monitor to see standbys. Sweep.Hidden is the number of standbys
	// that the role cannot see.
	MaxLag int64

	// MaxDead is how many dead rows of a table may wait for vacuum before the sweep waits, too.
	// DefaultMaxDead if zero; no limit if negative. Vacuum removes about DefaultMaxDead rows in one
	// pass over the index.
	MaxDead int64

	// Patience is how long a sweep waits for one cause, such as a standby, vacuum or a lock, before
	// it ends. The next run resumes the sweep. DefaultPatience if zero.
	Patience time.Duration

	// Max is the maximum duration of Once. After that time the sweep stops, and a later run resumes
	// it. No limit if zero.
	Max time.Duration

	// DryRun counts the rows that would be deleted, and changes nothing.
	DryRun bool

	// Progress, if not nil, is called after each portion, and while the sweep waits. It is called
	// in the goroutine of the sweep.
	Progress func(Progress)

	// Done is called by Run with the result of each sweep, and of each failed attempt. If it is
	// nil, failures are logged as warnings with slog's default logger.
	Done func(Report, error)
}

// checkForRun returns an error if an option that only Once supports is set.
func (o Options) checkForRun() error {
	if o.DryRun || o.Max != 0 {
		return errors.New("purge: Run: Options.DryRun and Options.Max are set; only Once supports them")
	}
	return nil
}

// complete checks the options and fills in the defaults.
func (o Options) complete(pool *pgxpool.Pool) (*Options, error) {
	switch {
	case pool == nil:
		return nil, errors.New("purge: pool is nil")
	case o.Every < 0, o.Grace < 0, o.Operations < 0, o.Audit < 0, o.Patience < 0, o.Max < 0, o.Pages < 0:
		return nil, errors.New("purge: Every, Grace, Operations, Audit, Patience, Max and Pages must not be negative")
	case !(o.Share >= 0 && o.Share <= 1): // also false for NaN
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
