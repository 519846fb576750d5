package idemgrpc_test

import (
	"context"
	"errors"
	"flag"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idem-go/idem/idemgrpc"
)

var calls = flag.Int("calls", 300, "how many calls are made to a server that loses every second answer")

func incoming(ctx context.Context, key string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs(idemgrpc.KeyMetadata, key))
}

// The server loses every second answer. Each call has one effect and its own reply.
func TestClient_LostAnswersHaveOneEffectPerCall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	keyed, err := idemgrpc.New(s.pool, config())
	if err != nil {
		t.Fatal(err)
	}
	var answers atomic.Int64
	loses := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		reply, err := handler(ctx, req)
		if err == nil && answers.Add(1)%2 == 1 {
			return nil, status.Error(codes.Unavailable, "lost")
		}
		return reply, err
	}
	address := listen(t, s, grpc.ChainUnaryInterceptor(loses, keyed.Unary()))
	client := dial(t, address, idemgrpc.ClientInterceptor(idemgrpc.ClientConfig{MinBackoff: time.Microsecond, MaxBackoff: time.Millisecond, MaxAttempts: 100, RetryRatio: 100, RetryBurst: 1000}))
	var wg sync.WaitGroup
	var mu sync.Mutex
	replies := map[string]int{}
	work := make(chan int)
	for range 8 {
		wg.Go(func() {
			for n := range work {
				reply, err := client.UnaryCall(t.Context(), order(strconv.Itoa(n)))
				if err != nil {
					t.Error(err)
					continue
				}
				mu.Lock()
				replies[reply.GetUsername()]++
				mu.Unlock()
			}
		})
	}
	for n := range *calls {
		work <- n
	}
	close(work)
	wg.Wait()
	s.wantOrders(t, *calls)
	if len(replies) != *calls {
		t.Errorf("%d different replies to %d calls", len(replies), *calls)
	}
	t.Logf("%d calls, %d answers", *calls, answers.Load())
}

// attempts makes a call to a server that returns these errors and then succeeds. It returns the
// keys that the server received.
func attempts(t *testing.T, ctx context.Context, config idemgrpc.ClientConfig, errs ...error) (keys []string, err error) {
	t.Helper()
	sends := 0
	err = idemgrpc.ClientInterceptor(config)(ctx, pb.TestService_UnaryCall_FullMethodName, nil, nil, nil,
		func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
			sends++
			sent, _ := metadata.FromOutgoingContext(ctx)
			keys = append(keys, sent.Get(idemgrpc.KeyMetadata)...)
			if sends > len(errs) {
				return nil
			}
			err := errs[sends-1]
			if err == errHangs {
				<-ctx.Done()
				return status.FromContextError(ctx.Err()).Err()
			}
			if p, ok := err.(*pushback); ok {
				for _, opt := range opts {
					if trailer, ok := opt.(grpc.TrailerCallOption); ok {
						*trailer.TrailerAddr = metadata.MD{"grpc-retry-pushback-ms": p.values}
					}
				}
				return p.error
			}
			return err
		})
	return keys, err
}

var errHangs = errors.New("no answer until the attempt ends")

type pushback struct {
	error
	values []string
}

func code(c codes.Code) error { return status.Error(c, "no") }

func retryInfo(t *testing.T, c codes.Code, d time.Duration) error {
	t.Helper()
	s, err := status.New(c, "no").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

var fast = idemgrpc.ClientConfig{MinBackoff: time.Nanosecond, MaxBackoff: time.Nanosecond}

func TestClient_WhatIsRetried(t *testing.T) {
	t.Parallel()
	unavailable := code(codes.Unavailable)
	for name, test := range map[string]struct {
		config idemgrpc.ClientConfig
		errs   []error
		want   int
	}{
		"unavailable":                     {fast, []error{unavailable}, 2},
		"aborted":                         {fast, []error{code(codes.Aborted)}, 2},
		"the end of an attempt":           {fast, []error{code(codes.DeadlineExceeded), code(codes.Canceled)}, 3},
		"an attempt that timed out":       {idemgrpc.ClientConfig{MinBackoff: 1, MaxBackoff: 1, AttemptTimeout: time.Millisecond}, []error{errHangs, errHangs}, 3},
		"all attempts":                    {fast, slices.Repeat([]error{unavailable}, 9), 5},
		"a number of attempts":            {idemgrpc.ClientConfig{MinBackoff: 1, MaxBackoff: 1, MaxAttempts: 2}, slices.Repeat([]error{unavailable}, 9), 2},
		"none":                            {idemgrpc.ClientConfig{MaxAttempts: 1}, []error{unavailable}, 1},
		"failed precondition":             {fast, []error{code(codes.FailedPrecondition)}, 1},
		"internal":                        {fast, []error{code(codes.Internal)}, 1},
		"unknown":                         {fast, []error{errors.New("no")}, 1},
		"exhausted":                       {fast, []error{code(codes.ResourceExhausted)}, 1},
		"exhausted until then":            {fast, []error{retryInfo(t, codes.ResourceExhausted, time.Millisecond)}, 2},
		"too long":                        {fast, []error{retryInfo(t, codes.Unavailable, time.Hour)}, 1},
		"asked to wait, none allowed":     {idemgrpc.ClientConfig{MinBackoff: 1, MaxBackoff: 1, MaxRetryDelay: -1}, []error{retryInfo(t, codes.Unavailable, time.Millisecond)}, 1},
		"not asked to wait, none allowed": {idemgrpc.ClientConfig{MinBackoff: 1, MaxBackoff: 1, MaxRetryDelay: -1}, []error{unavailable}, 2},
		"pushback":                        {fast, []error{&pushback{unavailable, []string{"1"}}}, 2},
		"pushback that wants no retry":    {fast, []error{&pushback{unavailable, []string{"-1"}}}, 1},
		"pushback that is not understood": {fast, []error{&pushback{unavailable, []string{"soon"}}}, 1},
		"pushback of two":                 {fast, []error{&pushback{unavailable, []string{"1", "1"}}}, 1},
		"beyond its time":                 {idemgrpc.ClientConfig{MaxElapsed: time.Millisecond}, []error{retryInfo(t, codes.Unavailable, time.Second)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, err := attempts(t, t.Context(), test.config, test.errs...)
			if len(keys) != test.want || (err == nil) != (len(keys) > len(test.errs)) {
				t.Errorf("it was sent %d times, want %d: %v", len(keys), test.want, err)
			}
			if slices.Sort(keys); len(slices.Compact(keys)) != 1 {
				t.Errorf("it had the keys %q", keys)
			}
		})
	}
}

func TestClient_WaitsAsLongAsTheServerAsks(t *testing.T) {
	t.Parallel()
	for _, err := range []error{retryInfo(t, codes.Aborted, 40*time.Millisecond), &pushback{code(codes.Unavailable), []string{"40"}}} {
		began := time.Now()
		if keys, err := attempts(t, t.Context(), fast, err); err != nil || len(keys) != 2 || time.Since(began) < 40*time.Millisecond {
			t.Errorf("sent %d times in %v, %v", len(keys), time.Since(began), err)
		}
	}
}

// The client does not begin a backoff that would outlast the caller's deadline.
func TestClient_DoesNotWaitPastItsDeadline(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if keys, err := attempts(t, ctx, fast, retryInfo(t, codes.Unavailable, 50*time.Second)); status.Code(err) != codes.Unavailable || len(keys) != 1 || ctx.Err() != nil {
		t.Errorf("%d, %v, %v", len(keys), err, ctx.Err())
	}
}

func TestClient_UsesTheKeyOfTheCaller(t *testing.T) {
	t.Parallel()
	for want, ctx := range map[string]context.Context{
		"a": idemgrpc.WithKey(t.Context(), "a"), "b": key(t.Context(), "b"), "c": idemgrpc.WithKey(key(t.Context(), "forwarded"), "c"),
	} {
		if keys, _ := attempts(t, ctx, fast); !slices.Equal(keys, []string{want}) {
			t.Errorf("sent %q, want %q", keys, want)
		}
	}
	first, _ := attempts(t, t.Context(), fast)
	second, _ := attempts(t, t.Context(), fast)
	if len(first) != 1 || len(first[0]) < 26 || slices.Equal(first, second) {
		t.Errorf("two calls have the keys %q and %q", first, second)
	}
}

func TestClient_RetriesHaveABudget(t *testing.T) {
	t.Parallel()
	sent := 0
	config := idemgrpc.ClientConfig{MinBackoff: 1, MaxBackoff: 1, RetryBurst: 3, RetryRatio: -1}
	intercept := idemgrpc.ClientInterceptor(config)
	for range 10 {
		_ = intercept(t.Context(), pb.TestService_UnaryCall_FullMethodName, nil, nil, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				sent++
				return code(codes.Unavailable)
			})
	}
	if sent != 13 {
		t.Errorf("10 calls were sent %d times, want 13", sent)
	}
}
