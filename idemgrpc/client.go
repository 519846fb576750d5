package idemgrpc

import (
	"cmp"
	"context"
	"crypto/rand"
	"math"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
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
// to be done, with the step that it is. Without it a call has the key of its outgoing metadata, or a random one. So a server that forwards the
// metadata of what it was asked gives its own calls WithKey: otherwise two of them have one key. gRPC sends printable ASCII alone.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyKey{}, key)
}

// ClientInterceptor returns an interceptor that sends each call under one key until it has an answer. It retries after UNAVAILABLE, ABORTED,
// and the end of an attempt that is not the end of the call; after RESOURCE_EXHAUSTED if the server says when. It obeys RetryInfo, and
// pushback as gRPC has it. If it gives up, the error is the status of the last attempt.
//
// All calls through an interceptor share its retry budget.
func ClientInterceptor(config ClientConfig) grpc.UnaryClientInterceptor {
	c := &client{ClientConfig: config}
	if c.Methods == nil {
		var ms methods
		c.Methods = ms.mayHaveEffect
	}
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 5)
	c.MaxElapsed, c.AttemptTimeout = orUnlimited(c.MaxElapsed, 2*time.Minute), orUnlimited(c.AttemptTimeout, 30*time.Second)
	c.MinBackoff, c.MaxBackoff = cmp.Or(c.MinBackoff, 250*time.Millisecond), cmp.Or(c.MaxBackoff, 10*time.Second)
	c.MaxRetryDelay = cmp.Or(c.MaxRetryDelay, time.Minute)
	c.RetryRatio, c.RetryBurst = cmp.Or(c.RetryRatio, 0.1), max(cmp.Or(c.RetryBurst, 10), 1)
	c.tokens = float64(c.RetryBurst)
	return c.invoke
}

func orUnlimited(d, standard time.Duration) time.Duration {
	if d < 0 {
		return math.MaxInt64
	}
	return cmp.Or(d, standard)
}

type client struct {
	ClientConfig
	mu     sync.Mutex
	tokens float64 // retries that may be made
}

func (c *client) invoke(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !c.Methods(method) {
		return invoker(ctx, method, req, reply, conn, opts...)
	}
	ctx = keyed(ctx)
	c.earn()
	for began, n := time.Now(), 1; ; n++ {
		var trailer metadata.MD
		err := c.attempt(ctx, func(ctx context.Context) error {
			return invoker(ctx, method, req, reply, conn, append(opts[:len(opts):len(opts)], grpc.Trailer(&trailer))...)
		})
		if err == nil || ctx.Err() != nil || n >= c.MaxAttempts {
			return err
		}
		asked, retries := c.asked(err, trailer)
		if !retries || !c.spend() {
			return err
		}
		pause := asked + c.backoff(n-1)
		if time.Since(began)+pause > c.MaxElapsed || !sleep(ctx, pause) {
			return err
		}
	}
}

func (c *client) attempt(ctx context.Context, send func(context.Context) error) error {
	if c.AttemptTimeout < math.MaxInt64 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.AttemptTimeout)
		defer cancel()
	}
	return send(ctx)
}

// keyed returns a context with the key of a call: the caller's, if there is one.
func keyed(ctx context.Context) context.Context {
	given, _ := metadata.FromOutgoingContext(ctx)
	key, ok := ctx.Value(keyKey{}).(string)
	switch {
	case !ok && len(given.Get(KeyMetadata)) > 0:
		return ctx
	case !ok:
		key = rand.Text()
	}
	sent := given.Copy()
	if sent == nil {
		sent = metadata.MD{}
	}
	sent.Set(KeyMetadata, key)
	return metadata.NewOutgoingContext(ctx, sent)
}

// asked returns whether a call is made again after err, and for how long the server wants to be left alone.
func (c *client) asked(err error, trailer metadata.MD) (time.Duration, bool) {
	s := status.Convert(err)
	delay, told := time.Duration(0), false
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			delay, told = max(delay, info.RetryDelay.AsDuration()), true
		}
	}
	if pushback := trailer.Get("grpc-retry-pushback-ms"); len(pushback) > 0 {
		ms, err := strconv.ParseInt(pushback[0], 10, 32)
		if err != nil || ms < 0 || len(pushback) > 1 {
			return 0, false // it wants no retry, as gRPC has it
		}
		delay, told = max(delay, time.Duration(ms)*time.Millisecond), true
	}
	if delay > max(c.MaxRetryDelay, 0) {
		return 0, false
	}
	switch s.Code() {
	case codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.Canceled:
		return delay, true
	case codes.ResourceExhausted:
		return delay, told
	}
	return 0, false
}

// backoff is the full jitter, rand(0, min(most, least·2ⁿ)).
func (c *client) backoff(n int) time.Duration {
	bound := c.MinBackoff
	for ; n > 0 && bound < c.MaxBackoff; n-- {
		bound *= 2
	}
	return mathrand.N(max(min(bound, c.MaxBackoff), 1))
}

// earn adds the share of a retry that a call allows.
func (c *client) earn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens = min(c.tokens+max(c.RetryRatio, 0), float64(c.RetryBurst))
}

// spend takes a retry from the budget, and reports whether there was one.
func (c *client) spend() bool {
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
