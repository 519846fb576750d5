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

// ClientConfig says how a client retries. The zero value works.
type ClientConfig struct {
	// Methods says which methods are sent with a key, and retried. The default is all but those whose idempotency_level is
	// NO_SIDE_EFFECTS, and the services of gRPC itself. Others pass through.
	Methods func(fullMethod string) bool

	// MaxAttempts bounds how often one call is sent, the first attempt included. The default is 5; 1 never retries.
	MaxAttempts int

	// MaxElapsed bounds, from when the call began, when a last attempt may begin. The default is 2 minutes; a negative one is no limit.
	MaxElapsed time.Duration

	// AttemptTimeout bounds one attempt. The default is 30 seconds; a negative one is no limit.
	AttemptTimeout time.Duration

	// MinBackoff and MaxBackoff shape the pause before retry n, counted from 0: a random time between 0 and
	// min(MaxBackoff, MinBackoff·2ⁿ), which is added to what the server asks for. The defaults are 250 milliseconds and 10 seconds.
	MinBackoff, MaxBackoff time.Duration

	// MaxRetryDelay bounds for how long the server may ask a client to wait. A call that is told to wait for longer is not retried. The default
	// is a minute; with a negative one no call is retried that is told to wait.
	MaxRetryDelay time.Duration

	// RetryRatio bounds retries to a share of the calls, and RetryBurst is how many may be made before that begins. The defaults are 0.1
	// and 10; a negative ratio allows those of the burst and no more.
	RetryRatio float64
	RetryBurst int
}

type keyKey struct{}

// WithKey gives the calls that are made with the context a key of the caller's: one that outlives the process, such as the id of what is
// to be done, with the step that it is.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyKey{}, key)
}

// Failure is the end of an attempt that has brought no reply.
type Failure struct {
	Said     *spb.Status
	Lost     bool          // it is not the server's word: the answer was lost on its way, whatever its code is
	Pushback []string      // grpc-retry-pushback-ms, which the server may have said
	After    time.Duration // for how long the server wants to be left alone, if it has said so otherwise than by RetryInfo
}

// Client sends calls until they have an answer. All calls through one share its retry budget.
type Client struct {
	ClientConfig
	mu     sync.Mutex
	tokens float64 // retries that may be made
}

// NewClient returns a Client.
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

func orUnlimited(d, standard time.Duration) time.Duration {
	if d < 0 {
		return math.MaxInt64
	}
	return cmp.Or(d, standard)
}

// Do sends a call, and sends it again after a failure behind which that may help: UNAVAILABLE, ABORTED, the end of an attempt that is not the end
// of the call, a lost answer, and RESOURCE_EXHAUSTED if the server says when. It returns the error of the last attempt. Each attempt has the same
// key, which send puts into it.
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

// KeyOf returns the key that WithKey has given, or else a random one.
func KeyOf(ctx context.Context) (key string, isGiven bool) {
	if key, ok := ctx.Value(keyKey{}).(string); ok {
		return key, true
	}
	return rand.Text(), false
}

// asked returns whether a call is made again after a failure, and for how long the server wants to be left alone.
func (c *Client) asked(f Failure) (time.Duration, bool) {
	delay, told := f.After, f.After > 0
	for _, detail := range f.Said.GetDetails() {
		var info errdetails.RetryInfo
		if detail.MessageIs(&info) && detail.UnmarshalTo(&info) == nil {
			delay, told = max(delay, info.RetryDelay.AsDuration()), true
		}
	}
	if len(f.Pushback) > 0 {
		ms, err := strconv.ParseInt(f.Pushback[0], 10, 32)
		if err != nil || ms < 0 || len(f.Pushback) > 1 {
			return 0, false // it wants no retry, as gRPC has it
		}
		delay, told = max(delay, time.Duration(ms)*time.Millisecond), true
	}
	if delay > max(c.MaxRetryDelay, 0) {
		return 0, false
	}
	switch code.Code(f.Said.GetCode()) {
	case code.Code_UNAVAILABLE, code.Code_ABORTED, code.Code_DEADLINE_EXCEEDED, code.Code_CANCELLED:
		return delay, true
	case code.Code_RESOURCE_EXHAUSTED:
		return delay, told
	}
	return delay, f.Lost
}

// backoff is the full jitter, rand(0, min(most, least·2ⁿ)).
func (c *Client) backoff(n int) time.Duration {
	bound := c.MinBackoff
	for ; n > 0 && bound < c.MaxBackoff; n-- {
		bound *= 2
	}
	return mathrand.N(max(min(bound, c.MaxBackoff), 1))
}

// earn adds the share of a retry that a call allows.
func (c *Client) earn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens = min(c.tokens+max(c.RetryRatio, 0), float64(c.RetryBurst))
}

// spend takes a retry from the budget, and reports whether there was one.
func (c *Client) spend() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens < 1 {
		return false
	}
	c.tokens--
	return true
}

// sleep reports whether the context has outlived a pause.
func sleep(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return false // it would end in vain
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
