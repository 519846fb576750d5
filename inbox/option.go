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

// Option changes how messages are handled. A slice of options may be used for many calls, also
// concurrently.
type Option func(*settings)

type settings struct {
	maxAttempts int
	minBackoff  time.Duration
	maxBackoff  time.Duration
	retention   time.Duration
	retries     int
	ordered     bool
	lanes       int
	circuit     int // failures in a row that open the circuit; 0 turns the circuit off
	maxPause    time.Duration
	txOptions   pgx.TxOptions
	sealer      idem.Sealer
	observer    Observer
	limits      limits
	forPoolOnly string // the name of the first option that HandleTx does not support
	err         error
}

// limits are the times for which a call waits. Only tests change them.
type limits struct {
	txn      txn.Limits
	lockWait time.Duration // waiting for a message that another process is handling
	divide   time.Duration // halving groups to find such messages
	turn     time.Duration // waiting in acquireTurn
	resolve  time.Duration // reading the outcome of a COMMIT in doubt
}

var defaultLimits = limits{txn: txn.DefaultLimits, lockWait: time.Second, divide: 3 * time.Second, turn: 5 * time.Second, resolve: 5 * time.Second}

func newSettings(opts []Option) settings {
	s := settings{
		maxAttempts: DefaultMaxAttempts, minBackoff: DefaultMinBackoff, maxBackoff: DefaultMaxBackoff, retention: DefaultRetention,
		retries: DefaultRetries, circuit: DefaultCircuitFailures, limits: defaultLimits,
	}
	for _, opt := range opts {
		if opt == nil {
			s.err = errors.New("inbox: an Option is nil; leave it out")
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

// CheckOptions returns the error that a call with these options would return. A program can use it
// to check its options when it starts.
func CheckOptions(opts ...Option) error { return newSettings(opts).err }

// WithMaxAttempts sets after how many failed attempts a message becomes a dead letter. The default
// is 10.
func WithMaxAttempts(n int) Option {
	return func(s *settings) {
		if n < 1 {
			s.refuse("WithMaxAttempts(%d): set 1 or more", n)
		}
		s.maxAttempts = n
	}
}

// WithBackoff sets the backoff of a message: min after the first failed attempt, and at most max.
// The backoff doubles with each attempt, with some jitter. The defaults are 1 second and 10
// minutes. If a message did not fail but was hindered, for example by a locked row, its backoff is
// at most 30 seconds, or min if that is longer.
func WithBackoff(min, max time.Duration) Option {
	return func(s *settings) {
		if min < time.Millisecond || max < min {
			s.refuse("WithBackoff(%v, %v): set min to a millisecond or more, and max to min or more", min, max)
		}
		s.minBackoff, s.maxBackoff = min, max
	}
}

// WithCircuit configures the circuit breaker of the consumer in this process. The circuit opens
// after the given number of failures in a row. The parameter longest is the longest pause. A
// handled message starts the count anew, so a few failing messages among others do not open the
// circuit. While the circuit is open, all messages of the consumer and pool are postponed and no
// attempt is counted: their Outcome is Retry with ErrPaused.
//
// After each pause, a probe tries messages one by one. If one of them is handled, the circuit
// closes. If all fail, only the attempt of the first one counts, and the next pause is twice as
// long.
//
// The first pause is the min of WithBackoff. By default, the circuit opens after 20 failures, and
// the longest pause is a minute, or the max of WithBackoff if that is shorter. 0 failures turn the
// circuit off.
func WithCircuit(failures int, longest time.Duration) Option {
	return func(s *settings) {
		s.poolOnly("WithCircuit")
		if failures < 0 || failures > 0 && longest < time.Millisecond {
			s.refuse("WithCircuit(%d, %v): set 0 or more failures, and a pause of a millisecond or more", failures, longest)
		}
		s.circuit, s.maxPause = failures, longest
	}
}

// WithRetention sets how long the ID of a message is stored after the message was handled. The time
// must be longer than any time after which the broker may deliver the message again. For a topic
// that may be read again from its beginning, that is the retention of the topic. The default is 7
// days.
func WithRetention(d time.Duration) Option {
	return func(s *settings) {
		if d < time.Millisecond || d > 100*365*24*time.Hour {
			s.refuse("WithRetention(%v): set a millisecond to a hundred years", d)
		}
		s.retention = d
	}
}

// WithOrder keeps the order of each key: a message waits while an earlier message of the same
// source and key has to be tried again. The broker has to deliver the messages of a key in order
// and to one call at a time, as with a Kafka partition. Messages without a key have no order.
// WithOrder costs a round trip for each call that has messages with keys.
func WithOrder() Option {
	return func(s *settings) {
		s.poolOnly("WithOrder")
		s.ordered = true
	}
}

// WithLanes lets Batch and Bulk handle several keys concurrently. The messages of a call are
// divided into up to n lanes. Each lane has its own transactions and its own goroutine. All
// messages of a key are in one lane, in their order; a message without a key may be in any lane.
// Failures have the same effect as without lanes. n is 1 by default, and at most 256.
//
// Lanes help if handlers mostly wait, for the database or for other services. Each lane needs a
// connection of the pool, and a call leaves at least one connection unused. If handlers in several
// lanes write the same row, such as a total, they wait for each other or run again after a
// deadlock.
func WithLanes(n int) Option {
	return func(s *settings) {
		s.poolOnly("WithLanes")
		if n < 1 || n > maxLanes {
			s.refuse("WithLanes(%d): set 1 to %d", n, maxLanes)
		}
		s.lanes = n
	}
}

const maxLanes = 256

// WithSealer encrypts the payloads and headers of dead letters in the database. See package seal.
func WithSealer(sealer idem.Sealer) Option {
	return func(s *settings) {
		if sealer == nil {
			s.refuse("WithSealer(nil): leave the option out to store payloads in plain text")
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

// WithTxOptions sets the options of the transactions in which handlers run, such as the isolation
// level. By default these transactions have the isolation level of the database.
func WithTxOptions(txOptions pgx.TxOptions) Option {
	return func(s *settings) {
		s.poolOnly("WithTxOptions")
		if txOptions.AccessMode == pgx.ReadOnly {
			s.refuse("WithTxOptions: a read-only transaction cannot store that a message is handled; set pgx.ReadWrite")
		}
		s.txOptions = txOptions
	}
}

// WithRetries sets how often a transaction is retried at once after a serialization failure, a
// deadlock, or a COMMIT that turned out to have failed. If the last retry fails as well, the
// messages of the transaction are postponed. The default is 3.
func WithRetries(n int) Option {
	return func(s *settings) {
		s.poolOnly("WithRetries")
		if n < 0 {
			s.refuse("WithRetries(%d): set 0 or more", n)
		}
		s.retries = n
	}
}

// WithObserver notifies observer of each call. If it is used several times, Observers combines the
// observers.
func WithObserver(observer Observer) Option {
	return func(s *settings) { s.observer = Observers(s.observer, observer) }
}
