package idem

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	defaultTTL         = 24 * time.Hour
	defaultWait        = 5 * time.Second
	defaultRetries     = 3
	defaultMaxResponse = 1 << 20
)

// Option changes how one call behaves. A slice of options is fit to be kept and shared.
type Option func(*options)

type options struct {
	ttl         time.Duration
	wait        time.Duration
	retries     int
	maxResponse int
	txOptions   pgx.TxOptions
	observer    Observer
	limits      limits

	forDoOnly string // the first option given that has no meaning for DoTx
	err       error
}

// limits bound what Do does on its own account, beyond the caller's context. They are no options: there is nothing to
// choose, and tests shorten them.
type limits struct {
	acquire  time.Duration // until a connection is there: a nested Do on a pool that is used up would wait for itself
	rollback time.Duration
	commit   time.Duration // how long a COMMIT under way outlives the caller's context
	resolve  time.Duration // how long to ask what became of a COMMIT whose answer was lost
}

var defaultLimits = limits{acquire: 30 * time.Second, rollback: 5 * time.Second, commit: 5 * time.Second, resolve: 5 * time.Second}

// set fills in the defaults and applies opts.
func (o *options) set(opts []Option) error {
	*o = options{ttl: defaultTTL, wait: defaultWait, retries: defaultRetries, maxResponse: defaultMaxResponse, limits: defaultLimits}
	for _, opt := range opts {
		if opt == nil {
			return errors.New("idem: nil Option")
		}
		opt(o)
	}
	return o.err
}

func (o *options) refuse(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("idem: "+format, args...)
	}
}

func (o *options) doOnly(name string) {
	if o.forDoOnly == "" {
		o.forDoOnly = name
	}
}

// keep is how long a record is kept from its claim on: the TTL and a margin. The margin lets the expiry stay where the
// claim put it, which spares the index an update, and still leaves the full TTL after the commit of an fn of ordinary speed.
func (o *options) keep() time.Duration {
	return o.ttl + min(o.ttl/8, time.Minute)
}

// WithTTL sets for how long the response is replayed: at least d after fn has returned and the response was recorded, which
// is just before the commit, at most an eighth of d or one minute more, whichever is less. After that the key counts as new. It should exceed by far the time for which callers keep
// retrying. The default is 24 hours.
func WithTTL(d time.Duration) Option {
	return func(o *options) {
		if d < time.Millisecond || d > 100*365*24*time.Hour {
			o.refuse("WithTTL(%v): a TTL is between a millisecond and a hundred years", d)
		}
		o.ttl = d
	}
}

// WithWait sets how long a duplicate waits for the call that holds its key before it answers ErrInProgress. Zero answers
// at once. While it waits it holds no connection. The default is 5 seconds; the caller's context may end the wait earlier.
func WithWait(d time.Duration) Option {
	return func(o *options) {
		o.doOnly("WithWait")
		if d < 0 {
			o.refuse("WithWait(%v): a wait is not negative", d)
		}
		o.wait = d
	}
}

// WithTxOptions sets the isolation level and the other options of the transaction. The default is that of the database.
func WithTxOptions(txOptions pgx.TxOptions) Option {
	return func(o *options) {
		o.doOnly("WithTxOptions")
		if txOptions.AccessMode == pgx.ReadOnly {
			o.refuse("WithTxOptions: a read-only transaction cannot record a response")
		}
		o.txOptions = txOptions
	}
}

// WithRetries sets how often the whole transaction is run again after a serialization failure, a deadlock, or a COMMIT that
// turned out not to have happened. Zero returns such an error at once. Dead connections that the pool hands out do not
// count. The default is 3.
func WithRetries(n int) Option {
	return func(o *options) {
		o.doOnly("WithRetries")
		if n < 0 {
			o.refuse("WithRetries(%d): a number of retries is not negative", n)
		}
		o.retries = n
	}
}

// WithMaxResponse sets the limit for the stored response, header and body together, in bytes. A larger one is refused with
// ErrResponseTooLarge and nothing is committed. The default is 1 MiB.
func WithMaxResponse(bytes int) Option {
	return func(o *options) {
		if bytes < 0 || bytes > 512<<20 {
			o.refuse("WithMaxResponse(%d): a limit is between 0 and 512 MiB", bytes)
		}
		o.maxResponse = bytes
	}
}

// WithObserver lets observer see what becomes of the call.
func WithObserver(observer Observer) Option {
	return func(o *options) { o.observer = observer }
}
