package idemconnect_test

import (
	"context"
	"errors"
	"flag"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idem-go/idem/idemconnect"
	rpc "github.com/idem-go/idem/idemconnect/internal/grpc_testingconnect"
)

var calls = flag.Int("calls", 100, "how many calls are made to a server that loses every second answer, in each protocol")

// loses is a server that loses every second answer: entirely, in the middle, or behind a proxy that
// gives up.
func loses(handler http.Handler, lost *atomic.Int64) http.Handler {
	var answers atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answers.Add(1)%2 == 0 {
			handler.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		switch n := lost.Add(1); {
		case n%3 == 1:
			w.WriteHeader(http.StatusBadGateway)
			return
		case n%3 == 2 && answer.Body.Len() > 1:
			maps.Copy(w.Header(), answer.Header())
			w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	})
}

// Each call has one effect and its own reply.
func TestClient_LostAnswersHaveOneEffectPerCall(t *testing.T) {
	t.Parallel()
	type dialer func(testing.TB, string, ...connect.ClientOption) rpc.TestServiceClient
	for _, transport := range []struct {
		name string
		dial dialer
	}{{"HTTP/1.1", dialHTTP1}, {"HTTP/2", dial}} {
		for protocol, options := range protocols {
			inShop(t, transport.name+" "+protocol, func(t *testing.T, s *shop) {
				keyed, err := idemconnect.New(s.pool, config())
				if err != nil {
					t.Fatal(err)
				}
				var lost atomic.Int64
				retries := idemconnect.ClientInterceptor(idemconnect.ClientConfig{
					MinBackoff: time.Microsecond, MaxBackoff: time.Millisecond, MaxAttempts: 100, RetryRatio: 100, RetryBurst: 1000,
				})
				client := transport.dial(t, listen(t, loses(handlerOf(s, keyed), &lost)), append([]connect.ClientOption{connect.WithInterceptors(retries)}, options...)...)
				replies := callAll(t, client)
				s.wantOrders(t, *calls)
				if replies != *calls || lost.Load() == 0 {
					t.Errorf("%d different replies to %d calls, %d were lost", replies, *calls, lost.Load())
				}
			})
		}
	}
}

// callAll makes calls, eight at a time, and returns how many different replies they had.
func callAll(t *testing.T, client rpc.TestServiceClient) int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	replies := map[string]bool{}
	work := make(chan int)
	for range 8 {
		wg.Go(func() {
			for n := range work {
				reply, err := client.UnaryCall(t.Context(), order(strconv.Itoa(n), ""))
				if err != nil {
					t.Error(err)
					continue
				}
				mu.Lock()
				replies[reply.Msg.GetUsername()] = true
				mu.Unlock()
			}
		})
	}
	for n := range *calls {
		work <- n
	}
	close(work)
	wg.Wait()
	return len(replies)
}

// attempts makes a call to a server that returns these errors and then succeeds. It returns the
// keys that the server received.
func attempts(t *testing.T, ctx context.Context, config idemconnect.ClientConfig, req *connect.Request[pb.SimpleRequest], errs ...error) (keys []string, err error) {
	t.Helper()
	script := connect.UnaryInterceptorFunc(func(connect.UnaryFunc) connect.UnaryFunc {
		return func(_ context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			keys = append(keys, req.Header().Values(idemconnect.KeyHeader)...)
			if len(keys) <= len(errs) {
				return nil, errs[len(keys)-1]
			}
			return connect.NewResponse(&pb.SimpleResponse{}), nil
		}
	})
	client := rpc.NewTestServiceClient(http.DefaultClient, "http://127.0.0.1:1", connect.WithInterceptors(idemconnect.ClientInterceptor(config), script))
	_, err = client.UnaryCall(ctx, req)
	return keys, err
}

// said is an error that came from a server.
func said(code connect.Code, meta ...string) error {
	err := connect.NewWireError(code, errors.New("no"))
	for i := 0; i+1 < len(meta); i += 2 {
		err.Meta().Add(meta[i], meta[i+1])
	}
	return err
}

func retryInfo(t *testing.T, code connect.Code, d time.Duration) error {
	t.Helper()
	detail, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	if err != nil {
		t.Fatal(err)
	}
	told := connect.NewWireError(code, errors.New("no"))
	told.AddDetail(detail)
	return told
}

var fast = idemconnect.ClientConfig{MinBackoff: time.Nanosecond, MaxBackoff: time.Nanosecond}

// The tests of idemgrpc try what the modules have in common.
func TestClient_WhatIsRetried(t *testing.T) {
	t.Parallel()
	const pushback = "Grpc-Retry-Pushback-Ms"
	unavailable := said(connect.CodeUnavailable)
	for name, test := range map[string]struct {
		errs []error
		want int
	}{
		"unavailable":                  {[]error{unavailable}, 2},
		"unknown, says the server":     {[]error{said(connect.CodeUnknown)}, 1},
		"unknown, says the client":     {[]error{connect.NewError(connect.CodeUnknown, errors.New("read message"))}, 2},
		"exhausted until then":         {[]error{retryInfo(t, connect.CodeResourceExhausted, time.Millisecond)}, 2},
		"Retry-After that is too long": {[]error{said(connect.CodeUnavailable, "Retry-After", "3600")}, 1},
		"Retry-After of nothing":       {[]error{said(connect.CodeUnavailable, "Retry-After", "soon")}, 2},
		"pushback":                     {[]error{said(connect.CodeUnavailable, pushback, "1")}, 2},
		"pushback that wants no retry": {[]error{said(connect.CodeUnavailable, pushback, "-1")}, 1},
		"pushback of two":              {[]error{said(connect.CodeUnavailable, pushback, "1", pushback, "1")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, err := attempts(t, t.Context(), fast, order("teapot", ""), test.errs...)
			if len(keys) != test.want || (err == nil) != (len(keys) > len(test.errs)) {
				t.Errorf("it was sent %d times, want %d: %v", len(keys), test.want, err)
			}
			if slices.Sort(keys); len(slices.Compact(keys)) != 1 {
				t.Errorf("it had the keys %q", keys)
			}
		})
	}
}

// The client interceptor does nothing in a server, and the server interceptor does nothing in a
// client.
func TestInterceptor_PassesThroughOnTheOtherSide(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	keyed, err := idemconnect.New(s.pool, config())
	if err != nil {
		t.Fatal(err)
	}
	url := s.serve(t, config(), idemconnect.ClientInterceptor(fast))
	client := dial(t, url, connect.WithInterceptors(keyed))
	if _, err := client.UnaryCall(t.Context(), order("teapot", "k")); err != nil {
		t.Error(err)
	}
	s.wantOrders(t, 1)
}

func TestClient_UsesTheKeyOfTheCaller(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ctx  context.Context
		own  string
		want string
	}{
		{idemconnect.WithKey(t.Context(), "a"), "", "a"}, {t.Context(), "b", "b"}, {idemconnect.WithKey(t.Context(), "c"), "forwarded", "c"},
	} {
		if keys, _ := attempts(t, test.ctx, fast, order("teapot", test.own)); !slices.Equal(keys, []string{test.want}) {
			t.Errorf("sent %q, want %q", keys, test.want)
		}
	}
	first, _ := attempts(t, t.Context(), fast, order("teapot", ""))
	second, _ := attempts(t, t.Context(), fast, order("teapot", ""))
	if len(first) != 1 || len(first[0]) < 26 || slices.Equal(first, second) {
		t.Errorf("two calls have the keys %q and %q", first, second)
	}
}
