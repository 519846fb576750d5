package idem

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/act"
	"github.com/idem-go/idem/internal/trial"
	"github.com/idem-go/idem/internal/txn"
)

// The defaults of the options.
const (
	DefaultTTL         = 24 * time.Hour
	DefaultWait        = 5 * time.Second
	DefaultRetries     = 3
	DefaultMaxResponse = 1 << 20
)

// Option changes how one call behaves. A slice of options is fit to be kept and shared.
type Option func(*settings)

// settings are what the options of a call come to.
type settings struct {
	ttl          time.Duration
	wait         time.Duration
	retries      int
	maxResponse  int
	txOptions    pgx.TxOptions
	name         string
	observer     Observer
	sealer       Sealer
	replayLikely bool
	rehearse     bool
	limits       limits
	lock         func(scope, key string) *int64 // instead of the advisory lock of the key; nil is none
	source       txn.Source                     // of connections, if they have another owner than the pool

	forDoOnly string // the first option given that has no meaning for DoTx
	err       error
}

// limits bound what a call does on its own account, beyond the caller's context. They are no options: there is nothing to
// choose, and tests shorten them.
type limits struct {
	txn     txn.Limits
	resolve time.Duration // how long to ask for the outcome of a COMMIT whose answer was lost
}

func init() {
	trial.Option = func(set func(trial.Settings)) any { return Option(func(s *settings) { set(s) }) }
}

// SetLimits is for tests.
func (s *settings) SetLimits(acquire, commit, resolve time.Duration) {
	s.limits.txn.Acquire, s.limits.txn.Commit, s.limits.resolve = acquire, commit, resolve
}

// SetLock is for tests.
func (s *settings) SetLock(lock func(scope, key string) *int64) { s.lock = lock }

var defaultLimits = limits{txn: txn.DefaultLimits, resolve: 5 * time.Second}

// CheckOptions returns the error that a call with these options would answer with, whatever else it is given: for a caller that
// keeps options and wants to know at the start of the program.
func CheckOptions(opts ...Option) error {
	var s settings
	return s.set(opts)
}

// set fills in the defaults and applies opts.
func (s *settings) set(opts []Option) error {
	*s = settings{ttl: DefaultTTL, wait: DefaultWait, retries: DefaultRetries, maxResponse: DefaultMaxResponse, limits: defaultLimits}
	for _, opt := range opts {
		if opt == nil {
			return errors.New("idem: nil Option")
		}
		opt(s)
	}
	return s.err
}

func (s *settings) refuse(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("idem: "+format, args...)
	}
}

func (s *settings) doOnly(name string) {
	if s.forDoOnly == "" {
		s.forDoOnly = name
	}
}

// WithTTL sets for how long the response is replayed, counted from when it was recorded, which is just before the commit.
// After that the key counts as new. It should exceed by far the time for which callers keep retrying. The default is 24
// hours.
func WithTTL(d time.Duration) Option {
	return func(s *settings) {
		if d < time.Millisecond || d > 100*365*24*time.Hour {
			s.refuse("WithTTL(%v): a TTL is between a millisecond and a hundred years", d)
		}
		s.ttl = d
	}
}

// WithWait sets how long a duplicate waits for the call that holds its key before it answers ErrInProgress. While it waits it
// holds no connection. Zero answers at once, also if what holds the key is not a call but SQL that is deleting its record;
// without it, the claim waits for such SQL as long as the context allows. The default is 5 seconds.
func WithWait(d time.Duration) Option {
	return func(s *settings) {
		s.doOnly("WithWait")
		if d < 0 {
			s.refuse("WithWait(%v): a wait is not negative", d)
		}
		s.wait = d
	}
}

// WithTxOptions sets the isolation level and the other options of the transaction. The default is that of the database.
func WithTxOptions(txOptions pgx.TxOptions) Option {
	return func(s *settings) {
		s.doOnly("WithTxOptions")
		if txOptions.AccessMode == pgx.ReadOnly {
			s.refuse("WithTxOptions: a read-only transaction cannot record a response")
		}
		s.txOptions = txOptions
	}
}

// WithRetries sets how often the whole transaction is run again after a serialization failure, a deadlock, or a COMMIT that
// turned out not to have happened. Zero returns such an error at once. Dead connections that the pool hands out do not
// count. The default is 3.
func WithRetries(n int) Option {
	return func(s *settings) {
		s.doOnly("WithRetries")
		if n < 0 {
			s.refuse("WithRetries(%d): a number of retries is not negative", n)
		}
		s.retries = n
	}
}

// WithMaxResponse sets the limit for the stored response, header and body together, in bytes. A larger one is refused with
// ErrResponseTooLarge and nothing is committed. The default is 1 MiB.
func WithMaxResponse(bytes int) Option {
	return func(s *settings) {
		if bytes < 0 || bytes > 512<<20 {
			s.refuse("WithMaxResponse(%d): a limit is between 0 and 512 MiB", bytes)
		}
		s.maxResponse = bytes
	}
}

// WithObserver lets observer see what happens to the call. Given several times, each sees it: see Observers. Nil adds none.
func WithObserver(observer Observer) Option {
	return func(s *settings) { s.observer = Observers(s.observer, observer) }
}

const maxCallName = 64

// WithName names the call for its observers: "place-order", say. It becomes a label of metrics and the name of spans, so
// it is written in the program, and never made from what a client sends. It has 1 to 64 printable characters of ASCII.
func WithName(name string) Option {
	return func(s *settings) {
		unprintable := func(c rune) bool { return c < ' ' || c > '~' }
		if name == "" || len(name) > maxCallName || strings.ContainsFunc(name, unprintable) {
			s.refuse("WithName: a name has 1 to %d printable characters of ASCII, this one has %d bytes", maxCallName, len(name))
			return
		}
		s.name = name
	}
}

// WithSealer encrypts the response at rest, and opens that of a replay: see package seal. Each call with a key has to give
// the same Sealer, or one that opens what the other one seals. A Sealer may also have a method Check() error, which says what is
// wrong with it: then CheckOptions does, and so does every call, before it does anything else.
func WithSealer(sealer Sealer) Option {
	return func(s *settings) {
		if sealer == nil {
			s.refuse("WithSealer(nil): to store responses plain, leave the option out")
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

// WithReplayLikely says that the key was probably used before, as in a request that says it is a repetition. The call then
// looks for the record first, by one statement outside of any transaction, and claims the key only if there is none: a
// replay costs little more than a SELECT, and a first run one round trip more.
func WithReplayLikely() Option {
	return func(s *settings) {
		s.doOnly("WithReplayLikely")
		s.replayLikely = true
	}
}

// WithRehearsal runs fn twice in one transaction. The writes of the first run are rolled back, as those of a run that ends in a
// serialization failure at COMMIT, and the second run counts. A test suite that passes with it has functions that are fit to be
// run again. A first run that fails or rejects is not repeated. If only the second run fails, the error says so.
//
// The option is for tests. Outside of a test binary the call fails, unless the environment variable IDEM_REHEARSE is 1.
//
// In a test binary, IDEM_REHEARSE=1 rehearses every function without this option: those of Do, DoJSON and DoTx, of idemhttp,
// idemsql, idemgrpc and idemconnect, of inbox, and each Tx of an operation. A Call of an operation is not rehearsed: its key
// makes it fit to be repeated.
func WithRehearsal() Option {
	return func(s *settings) {
		if !txn.CanRehearse() {
			s.refuse("WithRehearsal runs every function twice and is for tests: leave it out, or set IDEM_REHEARSE=1")
		}
		s.rehearse = true
	}
}

// WithPerson returns a context that names the person on whose behalf an act is done: Retry, Cancel and Resolve of package operation, Redrive
// and Drop of packages inbox and outbox. Each act that succeeds puts one row in idem.audit, in its own transaction, with that name beside the
// role that has logged in. A middleware may set it for all requests: nothing but an act reads it. Up to 200 bytes of it are kept.
func WithPerson(ctx context.Context, name string) context.Context { return act.WithPerson(ctx, name) }

// WithReason returns a context whose acts have a reason, for idem.audit as in WithPerson. Up to 1,000 bytes of it are kept: say why in a
// sentence, or name a ticket, and no key and nothing of a body.
func WithReason(ctx context.Context, reason string) context.Context {
	return act.WithReason(ctx, reason)
}
