package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// Policy says what happens when the outcome of a call is in doubt, and how the call is retried. A
// call is in doubt if its process died during an attempt. It is also in doubt if an attempt
// returned an error that is neither Final nor NotSent, because the answer may have been lost. Make
// a Policy by [Keyed] or [Asked], or use [Once].
type Policy struct {
	window    time.Duration // for Keyed: how long the other system stores a key
	find      func(ctx context.Context, key string) (value any, done bool, err error)
	once      bool
	attempts  int           // the maximum number of attempts; 0: no limit
	timeout   time.Duration // the timeout of each attempt; 0: no limit
	heartbeat time.Duration // the maximum time between two beats; 0: no limit
	min, max  time.Duration // the bounds of the backoff; 0: the defaults
	err       error         // why the policy cannot be used
}

const (
	defaultMinBackoff = 200 * time.Millisecond
	defaultMaxBackoff = time.Minute

	// For a pause of longPause or more, the operation is released.
	longPause = 5 * time.Second
)

// Keyed is the policy for a system that stores each key for at least the duration window. The
// system answers a repeated call with the outcome of the first call. A call in doubt is repeated
// under its key. When the window has passed since the commit before the first attempt, the
// operation parks with ReasonCallInDoubt instead. Most providers promise 24 hours: pass an hour
// less. If a repeated call returns a Final error, the error settles the earlier attempts, too.
func Keyed(window time.Duration) Policy {
	return Policy{window: window, err: positive("Keyed", window, "window")}
}

// Asked is the policy for a system that can be asked for the outcome of a key. If the call has
// happened, find returns its value, and done is true. If the call has not happened and can no
// longer happen, done is false. A Final error says that the other system has refused the call.
// After any other error the outcome is still in doubt, and find is called again after the backoff.
func Asked[T any](find func(ctx context.Context, key string) (value T, done bool, err error)) Policy {
	if find == nil {
		return Policy{err: errors.New("operation: Asked(nil): find is missing")}
	}
	return Policy{find: func(ctx context.Context, key string) (any, bool, error) {
		value, done, err := find(ctx, key)
		return value, done, err
	}}
}

// Once is the policy for a call that must not be made twice. If the outcome of an attempt is in
// doubt, the operation parks with ReasonCallInDoubt. After an attempt that was NotSent, another one
// may follow.
var Once = Policy{once: true}

// WithMaxAttempts limits how often a call is tried, by all callers and processes together. If the
// last attempt fails, the operation parks with ReasonAttemptsExhausted. If the call is known not to
// have happened, the function gets the last error as a Final error instead. There is no limit by
// default.
func (p Policy) WithMaxAttempts(n int) Policy {
	p.attempts, p.err = n, cmp.Or(positive("WithMaxAttempts", n, "number"), p.err)
	return p
}

// WithAttemptTimeout limits the duration of each attempt, and of each call of the find function of
// Asked. An attempt that fails because of the timeout is in doubt. With Keyed, the timeout must be
// shorter than the window. There is no timeout by default.
func (p Policy) WithAttemptTimeout(d time.Duration) Policy {
	p.timeout, p.err = d, cmp.Or(positive("WithAttemptTimeout", d, "timeout"), p.err)
	return p
}

// WithBackoff sets the bounds of the pauses between attempts. Each pause has a random duration
// below a limit. The limit is min after the first attempt. It doubles with each attempt, up to max.
// For a pause of 5 seconds or more the operation is released, and occupies no worker. The defaults
// are 200 milliseconds and a minute.
func (p Policy) WithBackoff(min, max time.Duration) Policy {
	if p.min, p.max = min, max; min <= 0 || max < min {
		p.err = fmt.Errorf("operation: WithBackoff(%v, %v): min must be positive, and max at least min", min, max)
	}
	return p
}

// WithHeartbeat limits the time between two calls of [Beat] by the function of a call. If Beat is
// not called for d, the context of the attempt ends with the cause ErrNoBeat, and the attempt is in
// doubt. The find function of Asked need not call Beat. With Keyed, d must be shorter than the
// window. There is no limit by default.
func (p Policy) WithHeartbeat(d time.Duration) Policy {
	p.heartbeat, p.err = d, cmp.Or(positive("WithHeartbeat", d, "time between two beats"), p.err)
	return p
}

// positive returns an error unless the argument of an option is positive.
func positive[N int | time.Duration](option string, n N, what string) error {
	if n > 0 {
		return nil
	}
	return fmt.Errorf("operation: %s(%v): the %s must be positive", option, n, what)
}

func (p *Policy) check() error {
	switch {
	case p.err != nil:
		return p.err
	case !p.once && p.find == nil && p.window <= 0:
		return errors.New("operation: the call has no policy: give it Keyed, Asked or Once")
	case p.window > 0 && p.timeout >= p.window:
		return fmt.Errorf("operation: WithAttemptTimeout(%v) must be shorter than the window of Keyed(%v)", p.timeout, p.window)
	case p.window > 0 && p.heartbeat >= p.window:
		return fmt.Errorf("operation: WithHeartbeat(%v) must be shorter than the window of Keyed(%v)", p.heartbeat, p.window)
	}
	return nil
}

// stored returns the policy as it is recorded with a call in doubt, such as "keyed 23h".
func (p *Policy) stored() string {
	switch {
	case p.once:
		return db.PolicyOnce
	case p.find != nil:
		return db.PolicyAsked
	}
	window := strings.TrimSuffix(strings.TrimSuffix(p.window.String(), "0s"), "0m") // 23h0m0s becomes 23h
	if strings.HasSuffix(window, "h") || strings.HasSuffix(window, "m") {
		return "keyed " + window
	}
	return "keyed " + p.window.String()
}

// storedWindow returns the window of a policy as it was recorded, or 0 if the policy is not Keyed.
func storedWindow(policy string) time.Duration {
	window, _ := time.ParseDuration(strings.TrimPrefix(policy, "keyed "))
	return window
}

// backoff returns the pause after the attempt of the given number. The pause is random, and at
// least a tenth of min.
func (p *Policy) backoff(attempt int) time.Duration {
	first, highest := p.min, p.max
	if first == 0 {
		first, highest = defaultMinBackoff, defaultMaxBackoff
	}
	limit := first
	for n := 1; n < attempt && limit < highest; n++ {
		limit += min(limit, highest-limit)
	}
	return max(rand.N(limit), first/10)
}

// bounded returns a context with the attempt timeout, for an attempt or for a call of find.
func (p *Policy) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.timeout > 0 {
		return context.WithTimeout(ctx, p.timeout)
	}
	return ctx, func() {}
}

// ErrNoBeat is the cause of a context that ended because the function of a call did not call Beat
// in time: see Policy.WithHeartbeat.
var ErrNoBeat = errors.New("operation: no beat came in time")

// Beat reports that the function of a call makes progress: see [Policy.WithHeartbeat]. ctx is the
// context of the function, or one derived from it. Without a heartbeat Beat does nothing.
func Beat(ctx context.Context) {
	if beat, ok := ctx.Value(beatKey{}).(func()); ok {
		beat()
	}
}

// beatKey is the context key of the function that Beat calls. The function restarts the timer of
// the heartbeat.
type beatKey struct{}

// watched returns the context of an attempt with its timeout and its heartbeat.
func (p *Policy) watched(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := p.bounded(ctx)
	if p.heartbeat == 0 {
		return ctx, stop
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(p.heartbeat, func() { cancel(ErrNoBeat) })
	return context.WithValue(ctx, beatKey{}, func() { timer.Reset(p.heartbeat) }), func() {
		timer.Stop()
		cancel(nil)
		stop()
	}
}
