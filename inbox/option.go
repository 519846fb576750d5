package inbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
)

// The defaults of the options.
const (
	DefaultMaxAttempts = 10
	DefaultMinBackoff  = time.Second
	DefaultMaxBackoff  = 10 * time.Minute
	DefaultRetention   = 7 * 24 * time.Hour
	DefaultRetries     = 3

	DefaultCircuitFailures = 20
	DefaultCircuitPause    = time.Minute
)

// Option changes how messages are handled. A slice of options is fit to be kept and shared.
type Option func(*settings)

// settings are what the options of a call come to.
type settings struct {
	maxAttempts int
	minBackoff  time.Duration
	maxBackoff  time.Duration
	retention   time.Duration
	retries     int
	ordered     bool
	lanes       int
	circuit     int // failures in a row
	maxPause    time.Duration
	txOptions   pgx.TxOptions
	sealer      idem.Sealer
	observer    Observer
	limits      limits
	forPoolOnly string // the first option given that has no meaning for HandleTx
	err         error
}

// limits bound what a call does on its own account. They are no options: tests shorten them.
type limits struct {
	txn      txn.Limits
	patience time.Duration // for a message that another consumer is handling
	search   time.Duration // how long a group is divided, in search of the messages that others have
	turn     time.Duration // for another message of the process whose last attempt has no recorded end
	resolve  time.Duration // how long to ask for the outcome of a COMMIT whose answer was lost
}

var defaultLimits = limits{txn: txn.DefaultLimits, patience: time.Second, search: 3 * time.Second, turn: 5 * time.Second, resolve: 5 * time.Second}

func newSettings(opts []Option) settings {
	s := settings{
		maxAttempts: DefaultMaxAttempts, minBackoff: DefaultMinBackoff, maxBackoff: DefaultMaxBackoff, retention: DefaultRetention,
		retries: DefaultRetries, circuit: DefaultCircuitFailures, limits: defaultLimits,
	}
	for _, opt := range opts {
		if opt == nil {
			s.err = errors.New("inbox: nil Option")
			continue
		}
		opt(&s)
	}
	if s.maxPause == 0 {
		s.maxPause = min(DefaultCircuitPause, s.maxBackoff)
	}
	return s
}

func (s *settings) refuse(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("inbox: "+format, args...)
	}
}

func (s *settings) poolOnly(name string) {
	if s.forPoolOnly == "" {
		s.forPoolOnly = name
	}
}

// CheckOptions returns the error that a call with these options would answer with, whatever else it is given: for a caller that
// keeps options and wants to know at the start of the program.
func CheckOptions(opts ...Option) error { return newSettings(opts).err }

// WithMaxAttempts sets after how many failed attempts a message becomes a dead letter. The default is 10.
func WithMaxAttempts(n int) Option {
	return func(s *settings) {
		if n < 1 {
			s.refuse("WithMaxAttempts(%d): a message has one attempt at least", n)
		}
		s.maxAttempts = n
	}
}

// WithBackoff sets how long a message waits after its first failed attempt, and the longest wait. Each wait is twice as long as
// the one before, with some jitter. The defaults are 1 second and 10 minutes. A message that something else has hindered, such as
// a lock, waits for 30 seconds or less.
func WithBackoff(min, max time.Duration) Option {
	return func(s *settings) {
		if min < time.Millisecond || max < min {
			s.refuse("WithBackoff(%v, %v): a backoff is a millisecond or longer, and min is not above max", min, max)
		}
		s.minBackoff, s.maxBackoff = min, max
	}
}

// WithCircuit sets after how many failures in a row, of whatever messages, the consumer pauses in this process, and for how long at
// most. A handled message starts the count anew, so a few poison messages among others open no circuit. While the circuit is open,
// the messages of all calls for this consumer and pool are put off uncounted: their Outcome is Retry with ErrPaused. After each
// pause messages are tried one by one: 1, 8, 64, 512 and then up to 1,000, for no longer than the pause has taken. If one is
// handled, the others are tried. If all fail, the attempt of the first one counts, and the next pause is twice as long. So messages
// that are all poison become dead letters by one attempt for each pause, and do not block those behind them for long.
//
// The first pause is the min of WithBackoff. The defaults are 20 failures and a minute, or the max of WithBackoff if that is less.
// With 0 failures the consumer never pauses.
func WithCircuit(failures int, longest time.Duration) Option {
	return func(s *settings) {
		s.poolOnly("WithCircuit")
		if failures < 0 || failures > 0 && longest < time.Millisecond {
			s.refuse("WithCircuit(%d, %v): failures are not negative, and a pause has a millisecond at least", failures, longest)
		}
		s.circuit, s.maxPause = failures, longest
	}
}

// WithRetention sets for how long a message is remembered after it was handled. It has to exceed the longest time after which
// the broker may deliver it again: for a topic that may be read again from its beginning, that is the retention of the topic. The
// default is 7 days.
func WithRetention(d time.Duration) Option {
	return func(s *settings) {
		if d < time.Millisecond || d > 100*365*24*time.Hour {
			s.refuse("WithRetention(%v): a retention is between a millisecond and a hundred years", d)
		}
		s.retention = d
	}
}

// WithOrder keeps the order of each key: a message waits as long as an earlier one of the same source and key is to be tried
// again. It takes a broker that gives the messages of one key to one call at a time, in order, as a partition does. A message
// without a key has no order. It costs one round trip for each call with keys.
func WithOrder() Option {
	return func(s *settings) {
		s.poolOnly("WithOrder")
		s.ordered = true
	}
}

// WithLanes lets Batch and Bulk handle several keys side by side: the messages of a call are divided into up to n lanes, each of which has
// transactions of its own, and the handlers of different lanes run at the same time. The messages of one key are in one lane, in their
// order; those without a key are in any. What happens to a message, and of its key if it fails, is the same as without lanes. The default
// is 1, which is one transaction for all.
//
// It is for handlers that wait: for statements of theirs, or for others. A lane needs a connection of the pool, and there are no more lanes
// than the pool has connections, less one. Handlers that write the same row, such as a total, wait for each other, or are run again
// because of a deadlock.
func WithLanes(n int) Option {
	return func(s *settings) {
		s.poolOnly("WithLanes")
		if n < 1 || n > maxLanes {
			s.refuse("WithLanes(%d): there are 1 to %d lanes", n, maxLanes)
		}
		s.lanes = n
	}
}

const maxLanes = 256

// WithSealer encrypts the payloads of dead letters at rest: see package seal.
func WithSealer(sealer idem.Sealer) Option {
	return func(s *settings) {
		if sealer == nil {
			s.refuse("WithSealer(nil): to store payloads plain, leave the option out")
			return
		}
		if checked, ok := sealer.(interface{ Check() error }); ok {
			if err := checked.Check(); err != nil {
				s.refuse("WithSealer: %w", err)
			}
		}
		s.sealer = sealer
	}
}

// WithTxOptions sets the isolation level and the other options of the transactions. The default is that of the database.
func WithTxOptions(txOptions pgx.TxOptions) Option {
	return func(s *settings) {
		s.poolOnly("WithTxOptions")
		if txOptions.AccessMode == pgx.ReadOnly {
			s.refuse("WithTxOptions: a read-only transaction cannot remember a message")
		}
		s.txOptions = txOptions
	}
}

// WithRetries sets how often a transaction is run again at once after a serialization failure, a deadlock, or a COMMIT that
// turned out not to have happened. After that its messages are to be delivered again. The default is 3.
func WithRetries(n int) Option {
	return func(s *settings) {
		s.poolOnly("WithRetries")
		if n < 0 {
			s.refuse("WithRetries(%d): a number of retries is not negative", n)
		}
		s.retries = n
	}
}

// WithObserver lets observer see how messages end. Several combine, as by Observers.
func WithObserver(observer Observer) Option {
	return func(s *settings) { s.observer = Observers(s.observer, observer) }
}
