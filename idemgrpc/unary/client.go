package unary

import (
	"cmp"
	"context"
	"crypto/rand"
	"math"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
)

// ClientConfig configures the retries of a client. The zero value works.
type ClientConfig struct {
	// Methods reports whether calls of a method get a key and are retried. Calls of other methods
	// pass through. The default excludes methods whose idempotency_level is NO_SIDE_EFFECTS, and
	// gRPC's own services.
	Methods func(fullMethod string) bool

	// MaxAttempts is the maximum number of attempts of a call, including the first one. The default
	// is 5. With 1 the client never retries.
	MaxAttempts int

	// MaxElapsed is the maximum time from the beginning of a call to the beginning of its last
	// attempt. The default is 2 minutes. A negative value means no limit.
	MaxElapsed time.Duration

	// AttemptTimeout is the timeout of one attempt. The default is 30 seconds. A negative value
	// means no timeout.
	AttemptTimeout time.Duration

	// MinBackoff and MaxBackoff determine the backoff before retry n, counted from 0. It is a
	// random time between 0 and min(MaxBackoff, MinBackoff·2ⁿ), in addition to the delay that the
	// server asks for. The defaults are 250 milliseconds and 10 seconds.
	MinBackoff, MaxBackoff time.Duration

	// MaxRetryDelay is the maximum delay that the server may ask for. If the server asks for a
	// longer delay, the call is not retried. The default is a minute. With a negative value, the
	// call is not retried if the server asks for any delay.
	MaxRetryDelay time.Duration

	// RetryRatio limits retries to a share of the calls. RetryBurst is the number of retries that
	// are possible before the limit applies. The defaults are 0.1 and 10. With a negative ratio,
	// only RetryBurst retries are possible.
	RetryRatio float64
	RetryBurst int
}

type keyKey struct{}

// WithKey returns a context. Every call with this context is sent with the given key. Use a key
// that outlives the process, such as the ID of the task together with the name of the step.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyKey{}, key)
}

// Failure describes an attempt that failed.
type Failure struct {
	Said *spb.Status
	// Lost is true if the answer was lost on its way. The code of Said then comes from the client
	// library and not from the server, and the call is retried whatever the code is.
	Lost     bool
	Pushback []string      // the values of the trailer grpc-retry-pushback-ms
	After    time.Duration // the retry delay from a header, such as Retry-After
}

// Client sends calls until they have an answer. All calls through one Client share a retry budget.
type Client struct {
	ClientConfig
	mu     sync.Mutex
	tokens float64 // the retries left in the budget; each call adds a fraction of one
}

// NewClient returns a Client with the defaults filled in.
func NewClient(config ClientConfig) *Client {
	c := &Client{ClientConfig: config}
	if c.Methods == nil {
		c.Methods = new(Methods).MayHaveEffect
	}
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 5)
	c.MaxElapsed, c.AttemptTimeout = orUnlimited(c.MaxElapsed, 2*time.Minute), orUnlimited(c.AttemptTimeout, 30*time.Second)
	c.MinBackoff, c.MaxBackoff = cmp.Or(c.MinBackoff, 250*time.Millisecond), cmp.Or(c.MaxBackoff, 10*time.Second)
	c.MaxRetryDelay = cmp.Or(c.MaxRetryDelay, time.Minute)
	c.RetryRatio, c.RetryBurst = cmp.Or(c.RetryRatio, 0.1), max(cmp.Or(c.RetryBurst, 10), 1)
	c.tokens = float64(c.RetryBurst)
	return c
}

// orUnlimited returns the argument standard if d is 0, and the longest possible duration if d is
// negative.
func orUnlimited(d, standard time.Duration) time.Duration {
	if d < 0 {
		return math.MaxInt64
	}
	return cmp.Or(d, standard)
}

// Do calls send until it succeeds or the failure is final. It returns the error of the last
// attempt. The caller gives all attempts the same key, in ctx or in send.
//
// Do retries after UNAVAILABLE, ABORTED, DEADLINE_EXCEEDED, CANCELLED and lost answers, as long as
// ctx has not ended. After RESOURCE_EXHAUSTED it retries only if the server says when to retry. Do
// stops when MaxAttempts, MaxElapsed or the retry budget is exhausted.
func (c *Client) Do(ctx context.Context, send func(context.Context) error, failureOf func(error) Failure) error {
	c.earn()
	for began, n := time.Now(), 1; ; n++ {
		err := c.attempt(ctx, send)
		if err == nil || ctx.Err() != nil || n >= c.MaxAttempts {
			return err
		}
		asked, retries := c.asked(failureOf(err))
		if !retries || !c.spend() {
			return err
		}
		pause := asked + c.backoff(n-1)
		if time.Since(began)+pause > c.MaxElapsed || !sleep(ctx, pause) {
			return err
		}
	}
}

func (c *Client) attempt(ctx context.Context, send func(context.Context) error) error {
	if c.AttemptTimeout < math.MaxInt64 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.AttemptTimeout)
		defer cancel()
	}
	return send(ctx)
}

// KeyOf returns the key that WithKey put into ctx and true, or a new random key and false.
func KeyOf(ctx context.Context) (key string, isGiven bool) {
	if key, ok := ctx.Value(keyKey{}).(string); ok {
		return key, true
	}
	return rand.Text(), false
}

// asked reports whether to retry after a failure, and the delay that the server asked for.
func (c *Client) asked(f Failure) (time.Duration, bool) {
	delay, known := f.After, f.After > 0
	for _, detail := range f.Said.GetDetails() {
		var info errdetails.RetryInfo
		if detail.MessageIs(&info) && detail.UnmarshalTo(&info) == nil {
			delay, known = max(delay, info.RetryDelay.AsDuration()), true
		}
	}
	if len(f.Pushback) > 0 {
		ms, err := strconv.ParseInt(f.Pushback[0], 10, 32)
		if err != nil || ms < 0 || len(f.Pushback) > 1 {
			return 0, false // an invalid or negative pushback forbids retries, as in gRPC
		}
		delay, known = max(delay, time.Duration(ms)*time.Millisecond), true
	}
	if delay > max(c.MaxRetryDelay, 0) {
		return 0, false
	}
	switch code.Code(f.Said.GetCode()) {
	case code.Code_UNAVAILABLE, code.Code_ABORTED, code.Code_DEADLINE_EXCEEDED, code.Code_CANCELLED:
		return delay, true
	case code.Code_RESOURCE_EXHAUSTED:
		return delay, known
	}
	return delay, f.Lost
}

// backoff returns the backoff before retry n, with full jitter: rand(0, min(MaxBackoff,
// MinBackoff·2ⁿ)).
func (c *Client) backoff(n int) time.Duration {
	bound := c.MinBackoff
	for ; n > 0 && bound < c.MaxBackoff; n-- {
		bound *= 2
	}
	return mathrand.N(max(min(bound, c.MaxBackoff), 1))
}

// earn adds RetryRatio to the budget, which is the part of a retry that each call pays for.
func (c *Client) earn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens = min(c.tokens+max(c.RetryRatio, 0), float64(c.RetryBurst))
}

// spend takes a retry from the budget. It returns false if no retry is left.
func (c *Client) spend() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens < 1 {
		return false
	}
	c.tokens--
	return true
}

// sleep waits for the time d, and returns false if ctx ends before that. If the deadline of ctx is
// earlier, sleep returns false at once.
func sleep(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return false // ctx would end during the wait
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
