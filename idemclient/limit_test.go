package idemclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/idemclient"
)

// If the pause would end after the deadline, the caller gets the last answer at once.
func TestPause_IsNotBegunBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		first answer
		check func(*testing.T, *http.Response, error)
	}{
		"response": {document(503, "", "busy", "Retry-After", "10"), func(t *testing.T, resp *http.Response, err error) {
			if err != nil || resp.StatusCode != 503 || finish(t, resp) != "busy" {
				t.Errorf("response %v, error %v", resp, err)
			}
			if last, ok := idemclient.LastAttempt(resp); !ok || last.Stop != idemclient.StopDeadline || last.Number != 1 {
				t.Errorf("the response says %+v", last)
			}
		}},
		"error": {failure(io.EOF), func(t *testing.T, _ *http.Response, err error) {
			var stopped *idemclient.Error
			if !errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &stopped) || stopped.Stop != idemclient.StopDeadline {
				t.Errorf("error %v", err)
			}
		}},
	} {
		bubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
			defer cancel()
			if name == "response" {
				ctx, cancel = context.WithTimeout(t.Context(), 9*time.Second)
				defer cancel()
			}
			began := time.Now()
			server := &script{answers: []answer{row.first}}
			transport := &idemclient.Transport{Base: server, MinBackoff: time.Hour, MaxBackoff: time.Hour}
			resp, err := transport.RoundTrip(post(t, ctx, somewhere))
			if took := time.Since(began); took != 0 {
				t.Errorf("it slept for %v", took)
			}
			row.check(t, resp, err)
		})
	}
}

func TestTransport_MaxAttempts(t *testing.T) {
	t.Parallel()
	for set, want := range map[int]int{0: 5, 1: 1, 2: 2, 7: 7, -1: 1} {
		synctest.Test(t, func(t *testing.T) {
			server, observed := &script{answers: []answer{document(503, "", "busy")}}, &observer{}
			resp := call(t, (&idemclient.Transport{Base: server, MaxAttempts: set, Observe: observed.observe}).RoundTrip, post(t, t.Context(), somewhere))
			if text := finish(t, resp); text != "busy" || len(server.requests()) != want || observed.last(t).Stop != idemclient.StopAttempts {
				t.Errorf("MaxAttempts %d: %d requests, body %q, stopped because of %q", set, len(server.requests()), text, observed.last(t).Stop)
			}
		})
	}
}

func TestTransport_MaxElapsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		server, observed := &script{answers: []answer{status(503, "Retry-After", "4")}}, &observer{}
		transport := &idemclient.Transport{
			Base: server, MaxAttempts: 100, MaxElapsed: 10 * time.Second, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond, Observe: observed.observe,
		}
		call(t, transport.RoundTrip, post(t, t.Context(), somewhere))
		if took := time.Since(began); len(server.requests()) != 3 || took >= 9*time.Second || observed.last(t).Stop != idemclient.StopElapsed {
			t.Errorf("%d requests in %v, stopped because of %q; want 3 in 8 s", len(server.requests()), took, observed.last(t).Stop)
		}
	})
}

func TestAttemptTimeout_IsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &script{answers: []answer{never, never, status(201)}}
		transport := &idemclient.Transport{Base: server, AttemptTimeout: 3 * time.Second}
		call(t, transport.RoundTrip, post(t, t.Context(), somewhere))
		for _, gap := range server.gaps() {
			if gap < 3*time.Second || gap > 4*time.Second {
				t.Errorf("an attempt and its pause took %v, want 3 s and a little", gap)
			}
		}
		if len(server.requests()) != 3 {
			t.Errorf("%d requests", len(server.requests()))
		}
	})
}

func TestAttemptTimeout_IsNotAContextError(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]answer{
		"base returns the cause":         never,
		"base returns the context error": func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
	} {
		bubble(t, name, func(t *testing.T) {
			client := idemclient.NewClient(&script{answers: []answer{hang}})
			_, err := client.Do(post(t, t.Context(), somewhere))
			var timeout interface{ Timeout() bool }
			if !errors.Is(err, idemclient.ErrAttemptTimeout) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
				!errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("error %v, want ErrAttemptTimeout, which is a timeout", err)
			}
		})
	}
}

// slowBody takes its time for every byte.
type slowBody struct {
	ctx    context.Context
	bytes  int
	closed bool
}

func (s *slowBody) Read(p []byte) (int, error) {
	if s.bytes--; s.bytes < 0 {
		return 0, io.EOF
	}
	select {
	case <-s.ctx.Done():
		return 0, context.Cause(s.ctx)
	case <-time.After(time.Second):
		p[0] = 'x'
		return 1, nil
	}
}

func (s *slowBody) Close() error { s.closed = true; return nil }

func slow(code, bytes int, headers ...string) answer {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := status(code, headers...)(req)
		resp.Body, resp.ContentLength = &slowBody{ctx: req.Context(), bytes: bytes}, -1
		return resp, err
	}
}

func TestAttemptTimeout_DoesNotLimitTheResponseBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &script{answers: []answer{slow(200, 60)}}
		resp := call(t, (&idemclient.Transport{Base: server, AttemptTimeout: 2 * time.Second}).RoundTrip, post(t, t.Context(), somewhere))
		if text := finish(t, resp); len(text) != 60 {
			t.Errorf("%d bytes of 60", len(text))
		}
	})
}

// The Transport reads the problem document within the timeout of the attempt.
func TestAttemptTimeout_LimitsTheProblemDocument(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cut *slowBody
		endless := func(req *http.Request) (*http.Response, error) {
			resp, err := slow(409, 60, "Content-Type", "application/problem+json")(req)
			cut = resp.Body.(*slowBody)
			return resp, err
		}
		server, observed := &script{answers: []answer{endless, status(200)}}, &observer{}
		transport := &idemclient.Transport{Base: server, AttemptTimeout: 2 * time.Second, Observe: observed.observe}
		call(t, transport.RoundTrip, post(t, t.Context(), somewhere))
		if first := observed.all()[0]; !errors.Is(first.Err, idemclient.ErrAttemptTimeout) {
			t.Errorf("the first attempt is told as %+v", first)
		}
		if !cut.closed {
			t.Error("the response of the first attempt was left open")
		}
	})
}

func TestTransport_LimitsDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &script{answers: []answer{slow(503, 3600), status(200)}}
		call(t, (&idemclient.Transport{Base: server}).RoundTrip, post(t, t.Context(), somewhere))
		if gap := server.gaps()[0]; gap > 2*time.Second {
			t.Errorf("the next attempt came after %v", gap)
		}
	})
}

func TestAttemptTimeout_NotForASingleAttempt(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		method    string
		transport *idemclient.Transport
	}{
		"not safe to repeat":         {"LOCK", &idemclient.Transport{}},
		"body that cannot be kept":   {"POST", &idemclient.Transport{MaxBuffer: -1}},
		"no more than one attempt":   {"POST", &idemclient.Transport{MaxAttempts: 1}},
		"no timeout, by the setting": {"POST", &idemclient.Transport{AttemptTimeout: -1}},
	} {
		bubble(t, name, func(t *testing.T) {
			row.transport.Base = &script{answers: []answer{func(req *http.Request) (*http.Response, error) {
				select {
				case <-req.Context().Done():
					return nil, req.Context().Err()
				case <-time.After(time.Hour):
					return status(200)(req)
				}
			}}}
			req := request(t, t.Context(), row.method, somewhere, &closing{Reader: strings.NewReader(order)})
			call(t, row.transport.RoundTrip, req)
		})
	}
}

func TestTransport_ReturnsWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	why := errors.New("the user closed the window")
	for name, row := range map[string]struct {
		first    answer
		attempts int
		status   int
		deadline bool // the context ends at its deadline; otherwise it is canceled
	}{
		"during an attempt":                {never, 1, 0, false},
		"in the pause after an error":      {failure(io.EOF), 1, 0, false},
		"in the pause after a response":    {status(503), 1, 503, false},
		"in the pause for the Retry-After": {status(429, "Retry-After", "60"), 1, 429, false},
		"at the deadline":                  {never, 1, 0, true},
	} {
		bubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Millisecond, func() { cancel(why) })
			if row.deadline {
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(t.Context(), time.Millisecond)
				defer stop()
			}
			server := &script{answers: []answer{row.first}}
			transport := &idemclient.Transport{Base: server, MinBackoff: time.Hour, MaxBackoff: time.Hour, MaxElapsed: -1}
			began := time.Now()
			_, err := transport.RoundTrip(post(t, ctx, somewhere))
			for end, want := range map[error]bool{
				context.Canceled: !row.deadline, why: !row.deadline, context.DeadlineExceeded: row.deadline, idemclient.ErrAttemptTimeout: false,
			} {
				if errors.Is(err, end) != want {
					t.Errorf("error %v; that it is %q must be %v", err, end, want)
				}
			}
			var stopped *idemclient.Error
			if !errors.As(err, &stopped) || stopped.Timeout() != row.deadline {
				t.Fatalf("error %v, which is no *Error, or whose Timeout is wrong", err)
			}
			if stopped.Stop != idemclient.StopEnded || stopped.Attempts != row.attempts || stopped.Status != row.status || stopped.Key == "" {
				t.Errorf("the error says %+v", stopped)
			}
			if took := time.Since(began); took != time.Millisecond || len(server.requests()) != row.attempts {
				t.Errorf("%d requests, returned after %v", len(server.requests()), took)
			}
		})
	}
}

func TestTransport_RequestCancelEndsThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cancel := make(chan struct{})
		time.AfterFunc(time.Millisecond, func() { close(cancel) })
		req := post(t, t.Context(), somewhere)
		req.Cancel = cancel //lint:ignore SA1019 what is old still has to work
		began := time.Now()
		transport := &idemclient.Transport{Base: &script{answers: []answer{status(503)}}, MinBackoff: time.Hour, MaxBackoff: time.Hour, MaxElapsed: -1}
		if _, err := transport.RoundTrip(req); !errors.Is(err, context.Canceled) || time.Since(began) != time.Millisecond {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}
