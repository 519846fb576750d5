package idem

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/audit"
	"github.com/idem-go/idem/internal/txn"
)

// The defaults of the options.
const (
	DefaultTTL         = 24 * time.Hour
	DefaultWait        = 5 * time.Second
	DefaultRetries     = 3
	DefaultMaxResponse = 1 << 20
)

// Option changes how one call behaves. The same Option may be used for many calls.
type Option func(*settings)

// settings are the values of the options of one call.
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
	lock         func(scope, key string) *int64 // for tests: returns the advisory lock that the call takes, nil for no lock
	source       txn.Source                     // where the call takes its connections if not from a pgx pool

	forDoOnly string // the name of the first given option that DoTx refuses
	err       error
}

// limits bound how long a call waits where the caller's context sets no limit or has ended. They
// are not options, because users have no reason to change them. Tests shorten them.
type limits struct {
	txn     txn.Limits
	resolve time.Duration // how long a call tries to learn the outcome of a COMMIT whose answer was lost
}

var defaultLimits = limits{txn: txn.DefaultLimits, resolve: 5 * time.Second}

// CheckOptions returns the error that a call with these options would return. Use it to check
// options at the start of a program.
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

// refuse stores an error for an invalid option. The error of the first invalid option counts.
func (s *settings) refuse(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("idem: "+format, args...)
	}
}

// doOnly stores the name of an option that DoTx refuses. The name of the first such option counts.
func (s *settings) doOnly(name string) {
	if s.forDoOnly == "" {
		s.forDoOnly = name
	}
}

// WithTTL sets for how long the response is replayed. The TTL begins when the response is recorded,
// just before COMMIT. After the TTL the key counts as new. The TTL should be much longer than
// callers keep retrying. The default is 24 hours.
func WithTTL(d time.Duration) Option {
	return func(s *settings) {
		if d < time.Millisecond || d > 100*365*24*time.Hour {
			s.refuse("WithTTL(%v): a TTL is between a millisecond and a hundred years", d)
		}
		s.ttl = d
	}
}

// WithWait sets how long a duplicate waits for the call that holds its key before it returns
// ErrInProgress. A waiting call holds no connection. With zero the call returns at once. If another
// statement is deleting the record of the key, the call waits for this statement in the same way,
// but at least a second. With WithWait(0) it waits only some milliseconds. The default is 5
// seconds.
func WithWait(d time.Duration) Option {
	return func(s *settings) {
		s.doOnly("WithWait")
		if d < 0 {
			s.refuse("WithWait(%v): a wait is not negative", d)
		}
		s.wait = d
	}
}

// WithTxOptions sets the isolation level and the other options of the transaction. The defaults are
// those of the database.
func WithTxOptions(txOptions pgx.TxOptions) Option {
	return func(s *settings) {
		s.doOnly("WithTxOptions")
		if txOptions.AccessMode == pgx.ReadOnly {
			s.refuse("WithTxOptions: a read-only transaction cannot record a response")
		}
		s.txOptions = txOptions
	}
}

// WithRetries sets how many times the whole transaction is run again after a serialization failure,
// a deadlock, or a COMMIT that turned out not to have happened. With zero the call returns such an
// error at once. Replacing a dead connection of the pool does not count as a retry. The default is
// 3.
func WithRetries(n int) Option {
	return func(s *settings) {
		s.doOnly("WithRetries")
		if n < 0 {
			s.refuse("WithRetries(%d): a number of retries is not negative", n)
		}
		s.retries = n
	}
}

// WithMaxResponse sets the maximum size of the response, header and body together, in bytes. For a
// larger response the call returns ErrResponseTooLarge and commits nothing. The default is 1 MiB.
func WithMaxResponse(bytes int) Option {
	return func(s *settings) {
		if bytes < 0 || bytes > 512<<20 {
			s.refuse("WithMaxResponse(%d): a limit is between 0 and 512 MiB", bytes)
		}
		s.maxResponse = bytes
	}
}

// WithObserver adds an observer of the call. The option may be given several times: see Observers.
// A nil observer adds none.
func WithObserver(observer Observer) Option {
	return func(s *settings) { s.observer = Observers(s.observer, observer) }
}

const maxCallName = 64

// WithName names the call for its observers, such as "place-order". The name becomes a label of
// metrics and the name of spans, so it must not contain anything that a client sends. It has 1 to
// 64 printable ASCII characters.
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

// WithSealer encrypts the stored response and decrypts it for a replay: see package seal. All calls
// with the same key must use Sealers that can open each other's responses. If the Sealer has a
// method Check() error, CheckOptions and every call return the error of Check.
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

// WithReplayLikely says that the key was probably used before, for example because the request is
// marked as a retry. The call then loads the record first, by one statement outside a transaction,
// and claims the key only if there is no record. A replay costs little more than a SELECT, and a
// first run costs one more round trip.
func WithReplayLikely() Option {
	return func(s *settings) {
		s.doOnly("WithReplayLikely")
		s.replayLikely = true
	}
}

// WithRehearsal tests whether fn can run again, as it must after a serialization failure. fn runs
// twice in one transaction, and the writes of the first run are rolled back. The second run counts.
// If the first run fails or rejects, there is no second run. If only the second run fails, the
// error says so.
//
// The option is for tests. Outside of a test binary the call fails, unless the environment variable
// IDEM_REHEARSE is 1.
//
// In a test binary, IDEM_REHEARSE=1 has the effect of this option on every function: the functions
// of Do, DoJSON and DoTx, of idemhttp, idemsql, idemgrpc, idemconnect and inbox, and each Tx of an
// operation. A Call of an operation is not rehearsed, because its effect on another system cannot
// be rolled back.
func WithRehearsal() Option {
	return func(s *settings) {
		if !txn.CanRehearse() {
			s.refuse("WithRehearsal runs every function twice and is for tests: leave it out, or set IDEM_REHEARSE=1")
		}
		s.rehearse = true
	}
}

// WithPerson returns a context that names the person who takes a manual action: Retry, Cancel and
// Resolve of package operation, Redrive and Drop of packages inbox and outbox. Each action that
// succeeds inserts one row into idem.audit, with the name and the database role, in the transaction
// of the action. Only manual actions read the name, so a middleware may set it for all requests. It
// is truncated to 200 bytes.
func WithPerson(ctx context.Context, name string) context.Context { return audit.WithPerson(ctx, name) }

// WithReason returns a context that gives the reason of a manual action for idem.audit: see
// WithPerson. Write a sentence or the number of a ticket. Do not write a key or a part of a request
// body. The reason is truncated to 1,000 bytes.
func WithReason(ctx context.Context, reason string) context.Context {
	return audit.WithReason(ctx, reason)
}
